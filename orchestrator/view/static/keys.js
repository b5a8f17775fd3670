// The keyboard. A page says which keys it takes; a few mean the same everywhere.

import { h } from "./dom.js";

const HELP = [
  ["j  k", "down, up"],
  ["Enter", "open"],
  ["/", "filter or search"],
  ["Esc", "leave the field; one page up"],
  ["[  ]", "previous, next trial of the table"],
  ["c", "compare: mark a trial, then c on another one, of any run; in a trial, with one beside it"],
  ["g  G", "first, last"],
  ["1  2  3", "in a trial: transcript, what it left, output"],
  ["?", "this"],
];

export function help() {
  const rows = HELP.map(([keys, what]) => [h("dt", null, keys.split("  ").map((key) => h("kbd", null, key))), h("dd", null, what)]);
  const close = () => {
    box.close();
    box.remove();
  };
  const box = h("dialog.help", { "aria-label": "keyboard", oncancel: close, onclick: (event) => event.target === box && close() },
    h("h2", null, "Keyboard"), h("dl", null, rows), h("button", { onclick: close }, "close"));
  document.body.append(box);
  box.showModal();
}

const typing = (element) => element instanceof HTMLInputElement || element instanceof HTMLTextAreaElement || element instanceof HTMLSelectElement;

/** Listens for as long as the page is open; `keys()` are those of the page that is shown. */
export function listen(keys, up) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    const target = document.activeElement;
    if (typing(target)) {
      if (event.key === "Escape") {
        event.preventDefault(); // a browser would empty the field, and the filter would go on
        target.blur();
      }
      return;
    }
    const found = keys()[event.key];
    // Enter on a link or a button is that one's.
    if (found && !(event.key === "Enter" && target && target.matches("a, button, summary"))) {
      event.preventDefault();
      found(event);
    } else if (event.key === "?") help();
    else if (event.key === "Escape") up();
  });
}

/** Moves a mark over elements: j, k, g, G. `items` returns them as they are now. */
export function cursor(items, open) {
  const current = () => items().findIndex((item) => item.classList.contains("current"));
  const set = (place) => {
    const every = items();
    if (!every.length) return;
    const next = Math.max(0, Math.min(every.length - 1, place));
    for (const item of every) item.classList.remove("current");
    every[next].classList.add("current");
    every[next].scrollIntoView({ block: "nearest" });
  };
  return {
    j: () => set(current() + 1),
    k: () => set(current() < 0 ? 0 : current() - 1),
    g: () => set(0),
    G: () => set(items().length - 1),
    Enter: () => {
      const item = items()[current()];
      if (item) open(item);
    },
  };
}
