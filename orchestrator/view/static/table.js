// The table of trials. Only the rows on the screen are in the page, and only the pages around them are asked for.

import { ask } from "./api.js";
import { h, link, replace, say } from "./dom.js";
import * as format from "./format.js";
import { result } from "./parts.js";
import { go, to } from "./route.js";

const HEIGHT = 30; // of a row, in CSS pixels; style.css has the same
const PAGE = 100;
const COLUMNS = [
  ["", "trial", ""],
  ["result", "result", ""],
  ["ending", "ending", ""],
  ["", "why", ""],
  ["cost", "cost", "number"],
  ["worked", "worked", "number"],
  ["steps", "steps", "number"],
  ["calls", "calls", "number"],
  ["tokens", "tokens", "number"],
  ["ended", "ended", "number"],
];
let marked = null; // the first of two trials to compare: [run, trial]

export function table({ run, sort: first, resort, changed }) {
  let query = "";
  let sort = first;
  let total = 0;
  let pages = new Map();
  let coming = new Set(); // pages that are asked for
  let current = 0;
  let asked = new AbortController();
  const body = h("tbody");
  const above = h("tr.space", { "aria-hidden": "true" }, h("td", { colspan: COLUMNS.length }));
  const under = h("tr.space", { "aria-hidden": "true" }, h("td", { colspan: COLUMNS.length }));
  const head = h("thead");
  const box = h("table.list.trials", { "aria-label": "trials" }, head, body);
  const root = h("div.scroll.grow", null, box);

  function heads() {
    replace(head, h("tr", null, COLUMNS.map(([key, word, kind]) => {
      if (!key) return h("th", { scope: "col", class: kind }, word);
      const on = sort.replace("-", "") === key;
      const next = sort === `-${key}` ? key : sort === key ? "" : `-${key}`;
      return h("th", { scope: "col", class: kind, "aria-sort": on ? (sort[0] === "-" ? "descending" : "ascending") : "none" },
        h("button.sort", { onclick: () => resort(next) }, word, h("i", { "aria-hidden": "true" }, on ? (sort[0] === "-" ? "↓" : "↑") : "")));
    })));
  }

  async function load(number, fresh = false) {
    if (!fresh && pages.has(number)) return pages.get(number);
    const found = await ask("trials", { run, q: query, sort, from: number * PAGE, count: PAGE }, asked.signal);
    const before = pages.get(number);
    pages.set(number, found);
    total = found.total;
    if (found !== before && fresh !== null) changed(found, null);
    return found;
  }

  function visible() {
    const top = Math.max(0, -body.getBoundingClientRect().top);
    const begin = Math.max(0, Math.floor(top / HEIGHT) - 10);
    return [begin, Math.min(total, begin + Math.ceil(innerHeight / HEIGHT) + 20)];
  }

  let drawn = "";
  function draw() {
    const [begin, end] = visible();
    const rows = [];
    const missing = new Set();
    for (let place = begin; place < end; place++) {
      const page = pages.get(Math.floor(place / PAGE));
      const row = page?.rows[place % PAGE];
      if (row) rows.push(line(row, place));
      else {
        missing.add(Math.floor(place / PAGE));
        rows.push(h("tr.waiting", { "aria-rowindex": place + 1 }, h("td", { colspan: COLUMNS.length }, "…")));
      }
    }
    above.firstChild.style.height = `${begin * HEIGHT}px`;
    under.firstChild.style.height = `${Math.max(0, total - end) * HEIGHT}px`;
    above.hidden = begin === 0;
    under.hidden = end >= total;
    box.setAttribute("aria-rowcount", String(total));
    const focused = document.activeElement?.closest?.("tr")?.dataset.trial;
    body.replaceChildren(above, ...rows, under);
    if (focused) [...body.children].find((row) => row.dataset.trial === focused)?.querySelector("a")?.focus({ preventScroll: true });
    if (!total) body.append(h("tr", null, h("td.muted", { colspan: COLUMNS.length }, "no trial fits this filter")));
    drawn = `${begin}-${end}`;
    for (const number of missing) {
      if (coming.has(number)) continue;
      coming.add(number);
      const mine = coming;
      load(number, null).then(draw, () => {}).finally(() => mine.delete(number));
    }
  }

  function line(row, place) {
    const more = { q: query, sort };
    const why = [...row.failed_checks, ...row.findings.map((each) => `! ${each}`)];
    const counted = row.result === row.graded_as ? null : h("span.tag", { title: "without quarantine and applicability" }, format.words(row.graded_as));
    return h("tr", { data: { trial: row.trial, place }, "aria-rowindex": place + 1,
      class: [place === current ? "current" : "", marked?.[0] === run && marked[1] === row.trial ? "marked" : ""].join(" ").trim() || null,
      onclick: (event) => event.target.closest("a, button") || (choose(place), draw()), ondblclick: () => go(to("trial", [run, row.trial], more)) },
      h("td.name", null, link(to("trial", [run, row.trial], more), null, row.task, h("span.muted", null, `@${row.agent}`), `:${row.sample}`)),
      h("td", null, result(row.result), counted),
      h("td.muted", null, row.ending ?? format.NONE, row.launches > 1 ? h("span.tag", { title: "launches" }, `×${row.launches}`) : null),
      h("td.cut.why", { title: why.join(", ") }, why.join(", ")),
      h("td.number", null, row.launches && row.cost_nano_usd === null ? "unknown" : format.nano(row.cost_nano_usd)),
      h("td.number", null, format.seconds(row.worked_s)),
      h("td.number", null, format.count(row.steps)),
      h("td.number", null, format.count(row.calls)),
      h("td.number", null, format.count(row.tokens)),
      h("td.number.muted", null, row.ended ? new Date(row.ended * 1000).toISOString().slice(11, 19) : format.NONE));
  }

  function choose(place) {
    current = Math.max(0, Math.min(total - 1, place));
  }

  function move(place) {
    choose(place);
    const top = body.getBoundingClientRect().top + current * HEIGHT;
    const bar = 150; // what stays at the top of the page
    if (top < bar) scrollBy(0, top - bar);
    else if (top + HEIGHT > innerHeight) scrollBy(0, top + HEIGHT - innerHeight + 8);
    draw();
  }

  const rowAt = (place) => pages.get(Math.floor(place / PAGE))?.rows[place % PAGE];

  function mark() {
    const row = rowAt(current);
    if (!row) return;
    const same = marked?.[0] === run && marked[1] === row.trial;
    if (marked && !same) {
      const [first, left] = marked;
      marked = null;
      say("");
      go(to("compare", first === run ? [run, left, row.trial] : [first, left, row.trial, run], { q: query, sort }));
      return;
    }
    marked = same ? null : [run, row.trial];
    say(marked ? `${row.trial} is marked; press c on another trial, of this run or another, to compare them` : "nothing is marked");
    draw();
  }

  async function show(nextQuery, nextSort) {
    asked.abort();
    asked = new AbortController();
    const other = nextQuery !== query || nextSort !== sort;
    query = nextQuery;
    sort = nextSort;
    pages = new Map();
    coming = new Set();
    if (other) current = 0;
    heads();
    try {
      await load(0, true);
      draw();
    } catch (error) {
      if (error.name !== "AbortError") changed(null, error);
    }
  }

  async function refresh() {
    const [begin, end] = visible();
    const wanted = new Set([0, Math.floor(begin / PAGE), Math.floor(Math.max(0, end - 1) / PAGE)]);
    let news = false;
    for (const number of wanted) {
      const before = pages.get(number);
      const found = await load(number, true);
      if (before && found !== before) {
        news = true;
        // What was not looked at again may be old.
        for (const key of pages.keys()) if (!wanted.has(key)) pages.delete(key);
      }
    }
    if (news) draw();
  }

  const moved = () => {
    const [begin, end] = visible();
    if (`${begin}-${end}` !== drawn) draw();
  };
  addEventListener("scroll", moved, { passive: true });
  addEventListener("resize", moved, { passive: true });
  const keys = {
    j: () => move(current + 1),
    k: () => move(current - 1),
    g: () => move(0),
    G: () => move(total - 1),
    Enter: () => rowAt(current) && go(to("trial", [run, rowAt(current).trial], { q: query, sort })),
    c: mark,
  };
  const close = () => {
    asked.abort();
    removeEventListener("scroll", moved);
    removeEventListener("resize", moved);
  };
  return { root, show, refresh, keys, close };
}
