// One file alone: a trajectory, or a list of the traces that are in it.

import { ask } from "./api.js";
import { h, link } from "./dom.js";
import { events } from "./events.js";
import * as format from "./format.js";
import { cursor } from "./keys.js";
import { go, to } from "./route.js";

const HEADS = ["trace", "task", "agent", "ending", "steps", "calls", "tokens", "cost", "took", "models"];

export async function file(route, start) {
  const number = route.parts[0] ?? (start.traces === 1 ? "0" : null);
  if (start.traces > 1 && number === null) return traces(start);
  return transcript(start, number);
}

async function traces(start) {
  const found = await ask("traces");
  const body = h("tbody", null, found.traces.map((trace, place) => h("tr", { data: { place } },
    h("td.name", null, link(to("file", [String(place)]), null, `line ${trace.line}`)),
    h("td.cut", null, trace.task ?? format.NONE), h("td.cut", null, trace.agent ?? format.NONE), h("td.muted", null, trace.ending),
    ...[trace.steps, trace.calls, trace.tokens].map((value) => h("td.number", null, format.count(value))),
    h("td.number", null, format.nano(trace.cost_nano_usd)), h("td.number", null, format.seconds(trace.took_s)),
    h("td.muted.cut", null, trace.models.join(", ")))));
  const root = h("section.page", null, h("div.bar", null, h("h1", null, start.file), h("span.muted", null, format.plural(found.traces.length, "trace"))),
    found.notes.map((note) => h("p.note", null, note)),
    h("div.scroll", null, h("table.list", null, h("thead", null, h("tr", null, HEADS.map((word, place) => h("th", { scope: "col", class: place > 3 && place < 9 ? "number" : null }, word)))), body)));
  return { root, crumbs: [["", start.file]], keys: cursor(() => [...body.children], (item) => go(to("file", [item.dataset.place]))) };
}

async function transcript(start, number) {
  const name = number === null || start.traces < 2 ? start.file : `trace ${Number(number) + 1}`;
  const root = h("section.page", null, h("h1", null, name));
  if (start.traces === 1) root.append(...(await ask("traces")).notes.map((note) => h("p.note", null, note)));
  const list = events(root, { trace: number }, {});
  const crumbs = start.traces > 1 ? [[to("file"), start.file], ["", name]] : [["", start.file]];
  const beside = (step) => () => number !== null && start.traces > Number(number) + step && Number(number) + step >= 0 && go(to("file", [String(Number(number) + step)]));
  return { root, crumbs, live: () => list.live() && !start.traces, refresh: async () => (start.traces ? null : list.refresh()), ready: () => list.ready, close: list.close,
    keys: { ...list.keys, "[": beside(-1), "]": beside(1) } };
}
