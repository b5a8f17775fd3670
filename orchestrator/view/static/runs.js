// All runs of the store, newest first.

import { ask } from "./api.js";
import { h, link, replace } from "./dom.js";
import * as format from "./format.js";
import { cursor } from "./keys.js";
import { meter, state } from "./parts.js";
import { go, to } from "./route.js";

const MORE = 100;
const HEADS = ["run", "suite", "agents", "state", "ended", "results", "cost", "where", "commit", "age"];

export async function runs(_route, start) {
  let most = MORE;
  let found = await ask("runs", { count: most });
  const body = h("tbody");
  const below = h("p.below");
  const filter = h("input.filter", { type: "search", placeholder: "run, suite, agent, commit", "aria-label": "filter runs", oninput: () => fill() });
  const notes = h("div");
  const root = h("section.page", null,
    h("div.bar", null, h("h1", null, "Runs"), h("span.muted.store", null, start.store), filter),
    notes,
    h("div.scroll", null, h("table.list", null, h("thead", null, h("tr", null, HEADS.map((word) => h("th", { scope: "col", class: right(word) }, word)))), body)),
    below);

  function right(word) {
    return ["ended", "cost", "age"].includes(word) ? "number" : null;
  }

  function fill() {
    const wanted = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const shown = found.runs.filter((run) => {
      const text = [run.run, run.suite, run.state, run.commit, ...run.agents].join(" ").toLowerCase();
      return wanted.every((word) => text.includes(word));
    });
    const current = body.querySelector(".current")?.dataset.run;
    replace(body, shown.map((run) => row(run, run.run === current)));
    if (!found.runs.length) replace(below, "this store has no run yet; start one with: orchestrate submit SUITE");
    else if (!shown.length) replace(below, "no run here fits");
    else if (found.more) replace(below, `${format.count(found.more)} older `, h("button", { onclick: older }, "show more"));
    else replace(below);
    replace(notes, found.notes.map((note) => h("p.note", null, note)));
  }

  async function older() {
    most += 4 * MORE;
    await refresh();
  }

  async function refresh() {
    const next = await ask("runs", { count: most });
    if (next === found) return;
    found = next;
    fill();
  }

  fill();
  const keys = cursor(() => [...body.children], (item) => go(to("run", [item.dataset.run])));
  keys["/"] = () => filter.focus();
  return { root, crumbs: [], refresh, keys, live: () => found.runs.some((run) => run.state === "running") };
}

function row(run, current) {
  const counts = run.counts ?? {};
  return h("tr", { data: { run: run.run }, class: current ? "current" : null },
    h("td.name", null, link(to("run", [run.run]), null, run.run), run.rerun_of ? h("span.tag", null, "rerun") : null),
    h("td", null, run.suite || format.NONE),
    h("td.muted.cut", { title: run.agents.join(", ") }, run.problem ?? run.agents.join(", ")),
    h("td", null, state(run.state)),
    h("td.number", null, `${format.count(run.ended)}/${format.count(run.planned)}`),
    h("td", null, run.counts ? meter(counts, run.planned) : format.NONE),
    h("td.number", null, run.counts ? (run.spent_nano_usd === null ? "unknown" : format.nano(run.spent_nano_usd)) : format.NONE),
    h("td.muted", null, run.backend ? `${run.backend}/${run.pool}` : format.NONE),
    h("td.muted.mono", null, (run.commit ?? format.NONE).slice(0, 8)),
    h("td.number.muted", { title: format.time(run.created_at) }, format.age(run.created_at)));
}
