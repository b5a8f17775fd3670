// Small things that several pages show.

import { h, seen } from "./dom.js";
import * as format from "./format.js";

export const RESULTS = ["passed", "failed", "abstained", "infra", "grader_error", "quarantined", "cancelled", "missing", "not_applicable"];

/** A result: a word with a mark of its own, so that colour says nothing alone. */
export function result(word, size = "") {
  return h(`span.result.${word}`, { class: size }, h("i", { "aria-hidden": "true" }), format.words(word === "missing" ? "not ended" : word));
}

export function state(word) {
  return h("span.state", { class: `state-${word}` }, h("i", { "aria-hidden": "true" }), word);
}

/** Results as parts of one bar. */
export function meter(counts, planned) {
  const shown = RESULTS.filter((word) => word !== "missing" && counts[word]);
  const words = shown.map((word) => `${format.count(counts[word])} ${format.words(word)}`).join(", ") || "nothing has ended yet";
  const bar = h("span.meter", { role: "img", "aria-label": words, title: words });
  for (const word of shown) {
    const part = h(`i.${word}`);
    part.style.flexGrow = String(counts[word]);
    bar.append(part);
  }
  const rest = planned - shown.reduce((sum, word) => sum + counts[word], 0);
  if (rest > 0) {
    const part = h("i.rest");
    part.style.flexGrow = String(rest);
    bar.append(part);
  }
  return bar;
}

/** A rate with its interval on a line from 0 to 100 %. */
export function interval(rate) {
  if (rate.value === null) return h("span.interval.none", { title: rate.reason ?? "" });
  const words = `${format.percent(rate.value)}, ${Math.round(100 * rate.level)}% interval ${format.percent(rate.ci_low)} to ${format.percent(rate.ci_high)}`;
  const line = h("span.interval", { role: "img", "aria-label": words, title: `${words}; ${rate.method}` });
  if (rate.ci_low !== null && rate.ci_high !== null) {
    const range = h("i.range");
    range.style.left = `${100 * rate.ci_low}%`;
    range.style.width = `${100 * (rate.ci_high - rate.ci_low)}%`;
    line.append(range);
  }
  const point = h("i.point");
  point.style.left = `${100 * rate.value}%`;
  line.append(point);
  return line;
}

/** Names and values, one a line. Values without anything to say are left out. */
export function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined && value !== false && value !== "" && value !== format.NONE);
  return h("dl.facts", null, shown.map(([name, value]) => [h("dt", null, name), h("dd", null, value)]));
}

/** A text of which the beginning is shown; `whole`, where there is more than came, fetches the next piece: (from) => {text, chars}. */
export function folded(text, chars, { lines = 14, kind = "text", whole = null } = {}) {
  const box = h("div.text", { class: kind });
  const pre = h("pre");
  const foot = h("div.foot");
  let held = text;
  let open = false;
  const draw = () => {
    const every = held.split("\n");
    const cut = !open && every.length > lines + 3;
    fill(pre, cut ? every.slice(0, lines).join("\n") : held, kind);
    foot.replaceChildren();
    if (cut) foot.append(h("button.link", { onclick: unfold }, `${format.count(every.length - lines)} more lines`));
    else if (held.length < chars && whole) foot.append(h("button.link", { onclick: more }, `${format.count(chars - held.length)} more characters`));
    if (open && every.length > lines + 3) foot.append(h("button.link", { onclick: fold }, "fold"));
  };
  const unfold = () => {
    open = true;
    draw();
  };
  const fold = () => {
    open = false;
    draw();
    box.scrollIntoView({ block: "nearest" });
  };
  const more = async (event) => {
    event.target.disabled = true;
    try {
      const found = await whole(held.length);
      held += found.text;
      open = true;
      draw();
    } catch (error) {
      foot.append(h("span.problem", null, error.message));
    }
  };
  draw();
  box.append(pre, foot);
  return box;
}

const DIFF = { "+": "plus", "-": "minus", "@": "hunk" };

function fill(pre, text, kind) {
  if (kind === "diff") pre.replaceChildren(...text.split("\n").map((line) => h("span.line", { class: DIFF[line[0]] ?? null }, line)));
  else pre.replaceChildren(seen(text, { lines: true }));
}
