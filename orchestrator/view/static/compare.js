// Two trials side by side: numbers, checks, and their steps, each beside the one of the other that it belongs to.

import { ask } from "./api.js";
import { h, link, replace } from "./dom.js";
import { item } from "./events.js";
import * as format from "./format.js";
import { cursor } from "./keys.js";
import { result } from "./parts.js";
import { go, to } from "./route.js";

const PAGE = 20;

export async function compare(route) {
  const [run, left, right, other = run] = route.parts;
  const asked = { run, left, right, right_run: other === run ? "" : other };
  const from = { q: route.query.get("q"), sort: route.query.get("sort") };
  const found = await ask("compare", { ...asked, count: PAGE });
  const rows = h("ol.pairs");
  const end = h("div.end");
  let next = 0;
  let loading = false;
  const names = [[run, left], [other, right]];
  const swapped = to("compare", other === run ? [run, right, left] : [other, right, left, run], from);
  const root = h("section.page", null,
    h("div.bar", null, h("h1", null, "Compare"), h("span.grow"), link(swapped, { class: "button" }, "swap sides")),
    h("div.sides.sticky", null, h("span"), names.map(([of, name], place) => h("div", null, link(to("trial", [of, name], from), { class: "strong" }, name),
      result(found.sides[place].result), other === run ? null : h("span.muted.small", null, of)))),
    numbers(found.sides), checks(found.checks),
    h("h2", null, "Steps"), about(found), rows, end);

  function take(page) {
    for (const row of page.rows) rows.append(pair(row, names));
    next = page.from + page.rows.length;
    replace(end, next < page.total ? "…" : "");
  }

  async function more() {
    if (loading || !found.steps || next >= found.steps.total) return;
    loading = true;
    try {
      take((await ask("compare", { ...asked, from: next, count: PAGE })).steps);
    } finally {
      loading = false;
    }
  }

  const observer = new IntersectionObserver((seen) => seen.some((each) => each.isIntersecting) && more().catch((error) => replace(end, error.message)), { rootMargin: "600px" });
  if (found.steps) {
    take(found.steps);
    observer.observe(end);
  }
  const keys = cursor(() => [...rows.children], (row) => row.querySelector("summary")?.click());
  keys.c = () => go(swapped);
  return { root, crumbs: [[to("runs"), "runs"], [to("run", [run], from), run], ["", `${left} and ${right}`]], keys, close: () => observer.disconnect() };
}

function about(found) {
  const steps = found.steps;
  if (!steps) return h("p.muted", null, `${found.problem ?? "there is nothing to compare"}: there are no steps to compare`);
  if (!steps.total) return h("p.muted", null, "neither asked a model for anything");
  if (steps.first_difference === null) return h("p.muted", null, `all ${format.plural(steps.total, "step")} are the same`);
  return h("p.muted", null, `${format.count(steps.equal)} of ${format.plural(steps.total, "step")} are the same; they part at step ${steps.first_difference + 1}`);
}

function numbers(sides) {
  const lines = [
    ["ending", (one) => one.ending ?? format.NONE],
    ["worked", (one) => format.seconds(one.worked_s)],
    ["steps", (one) => format.count(one.steps)],
    ["tool calls", (one) => format.count(one.calls)],
    ["tokens", (one) => format.count(one.tokens)],
    ["cost", (one) => (one.launches && one.cost_nano_usd === null ? "unknown" : format.nano(one.cost_nano_usd))],
    ["findings", (one) => one.findings.join(", ") || format.NONE],
  ];
  return h("table.list.tight.both", null, h("tbody", null, lines.map(([name, show]) => row(name, sides.map(show)))));
}

const TOLD = new Set(["ending", "findings"]); // numbers always differ

function row(name, values) {
  const differs = TOLD.has(name) && values[0] !== values[1];
  return h("tr", { class: differs ? "differs" : null }, h("th", { scope: "row" }, name), values.map((value) => h("td", null, value)));
}

const WORDS = { true: "holds", false: "does not hold", null: "not known" };

function checks(found) {
  if (!found.length) return null;
  const cell = (side) => {
    if (!side) return h("td.muted", null, format.NONE);
    const actual = side.passed === true || side.actual === null ? "" : typeof side.actual === "string" ? side.actual : JSON.stringify(side.actual);
    return h("td", { class: { true: "ok", false: "bad", null: "odd" }[String(side.passed)] }, h("b", null, WORDS[String(side.passed)]), side.gate ? null : h("span.tag", null, "reported only"),
      actual ? h("div.foreign.small", null, actual.slice(0, 400)) : null);
  };
  return [h("h2", null, "Checks"), h("table.list.tight.both", null, h("tbody", null, found.map((one) =>
    h("tr", { class: one.sides[0]?.passed === one.sides[1]?.passed ? null : "differs" }, h("th", { scope: "row" }, one.id), one.sides.map(cell)))))];
}

function pair(row, names) {
  const title = row.same ? "same" : row.sides.every(Boolean) ? "different" : "only on one side";
  const body = h("div.sides");
  const fill = () => body.childElementCount || replace(body, row.sides.map((side, which) => h("ol.events.narrow", null,
    side ? side.events.map((event) => item(event, side.events[0].t, { run: names[which][0], trial: names[which][1] }, { brief: true })) : h("li.muted.gap", null, "no such step"),
    side?.more ? h("li.muted", null, `${format.plural(side.more, "more event")}`) : null)));
  if (!row.same) fill();
  // What a model asked for; a tool of the gateway is seen a second time when it is called, and alone where no model asked.
  const called = (side, source) => side?.events.filter((event) => event.type === "tool_call" && event.source === source).map((event) => event.title).join(", ");
  const brief = row.sides.map((side) => called(side, "agent") || called(side, "gateway")).find(Boolean) ?? "answer";
  return h("li.pair", { class: row.same ? "same" : "other" }, h("details", { open: !row.same, ontoggle: fill },
    h("summary", null, h("b", null, `step ${row.sides.map((side) => side?.step ?? format.NONE).join(" / ")}`), h("span.tag", null, title), h("span.muted.cut", null, brief)), body));
}
