// The frame of every page: which one is shown, what is above it, and how it is kept up to date.

import { ask } from "./api.js";
import { compare } from "./compare.js";
import { h, link, replace } from "./dom.js";
import { file } from "./file.js";
import { listen, help } from "./keys.js";
import { go, parse, to } from "./route.js";
import { run } from "./run.js";
import { runs } from "./runs.js";
import { trial } from "./trial.js";

const SOON = 2000; // milliseconds between two looks at what is going on
const LATER = 15000; // and at what is over
const pages = { runs, run, trial, compare };
const main = document.getElementById("main");
let start = null;
let shown = null; // {refresh, keys, close, crumbs, live}
let timer = 0;
let number = 0;

function header() {
  const crumbs = shown?.crumbs ?? [];
  const path = [link(start.file ? to("file") : to("runs"), { class: "brand" }, "orchestrate")];
  for (const [hash, text] of crumbs) {
    path.push(h("span.sep", { "aria-hidden": "true" }, "/"));
    path.push(hash ? link(hash, null, text) : h("span", { "aria-current": "page" }, text));
  }
  replace(
    document.getElementById("top"),
    h("nav.crumbs", { "aria-label": "where you are" }, path),
    h("span.pulse", { id: "pulse", title: "kept up to date" }, h("i", { "aria-hidden": "true" }), h("b")),
    h("button.quiet", { onclick: help, title: "keyboard (?)", "aria-label": "keyboard help" }, "?"),
  );
}

function pulse(word) {
  const place = document.getElementById("pulse");
  if (!place) return;
  place.dataset.state = word;
  replace(place.querySelector("b"), word);
}

async function render() {
  const here = ++number;
  shown?.close?.();
  document.querySelector("dialog[open]")?.remove();
  clearTimeout(timer);
  const route = parse(location.hash);
  const make = start.file ? file : (pages[route.name] ?? runs);
  try {
    const page = await make(route, start);
    if (here !== number) return page.close?.();
    shown = page;
    replace(main, page.root);
    document.title = [...(page.crumbs ?? []).map(([, text]) => text).reverse(), "orchestrate"].join(" · ");
    header();
    window.scrollTo(0, 0);
    main.focus({ preventScroll: true });
    await page.ready?.();
    tick(here);
  } catch (error) {
    if (here !== number || error.name === "AbortError") return;
    shown = null;
    header();
    replace(main, problem(error));
  }
}

/** What went wrong, in words, with a way on. */
export function problem(error) {
  return h("section.page", null, h("p.problem", { role: "alert" }, error.message), h("button", { onclick: render }, "try again"));
}

function tick(here) {
  if (here !== number || !shown?.refresh) return;
  const live = shown.live?.() ?? false;
  pulse(live ? "live" : "");
  timer = setTimeout(async () => {
    if (here !== number) return;
    try {
      if (!document.hidden) await shown.refresh();
    } catch (error) {
      if (here === number && error.name !== "AbortError") pulse("not answering");
      timer = setTimeout(() => tick(here), SOON);
      return;
    }
    tick(here);
  }, live ? SOON : LATER);
}

async function begin() {
  try {
    start = await ask("start");
  } catch (error) {
    replace(main, problem(error));
    return;
  }
  if (!location.hash) history.replaceState(null, "", `#${start.file ? to("file") : start.run ? to("run", [start.run]) : to("runs")}`);
  addEventListener("hashchange", render);
  document.addEventListener("visibilitychange", () => {
    if (document.hidden || !shown) return;
    clearTimeout(timer);
    shown.refresh?.().catch(() => {});
    tick(number);
  });
  listen(() => shown?.keys ?? {}, () => {
    const up = [...(shown?.crumbs ?? [])].reverse().find(([hash]) => hash);
    if (up) go(up[0]);
    else if (!start.file && parse(location.hash).name !== "runs") go(to("runs"));
  });
  await render();
}

begin();
