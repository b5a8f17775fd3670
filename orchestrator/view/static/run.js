// One run: how far it is, its rates, and the table of its trials.

import { ask } from "./api.js";
import { h, replace } from "./dom.js";
import * as format from "./format.js";
import { interval, meter, result, RESULTS, state } from "./parts.js";
import { stay, to } from "./route.js";
import { table } from "./table.js";

export async function run(route) {
  const name = route.parts[0];
  let found = await ask("run", { run: name });
  let query = route.query.get("q") ?? "";
  let sort = route.query.get("sort") ?? "";
  const head = h("div.head");
  const rates = h("div.rates");
  const input = h("input.filter.wide", { type: "search", value: query, spellcheck: "false", autocomplete: "off",
    placeholder: 'filter:  agent:careful  result:failed  -check:hidden_tests  "any text"', "aria-label": "filter trials", oninput: typed });
  const wrong = h("p.problem", { role: "alert" });
  const counted = h("p.counted");
  const side = h("aside.facets", { "aria-label": "filter by value" });
  const list = table({ run: name, sort, resort, changed });
  const way = onTheWay(name);
  const root = h("section.page", null, head, rates, way,
    h("div.bar.sticky", null, h("h2", null, "Trials"), input, counted), wrong,
    h("div.split", null, side, list.root));
  let timer = 0;

  function typed() {
    clearTimeout(timer);
    timer = setTimeout(() => choose(input.value), 200);
  }

  function choose(text) {
    query = text;
    if (input.value !== text) input.value = text;
    stay(to("run", [name], { q: query, sort }));
    return list.show(query, sort);
  }

  function resort(next) {
    sort = next;
    choose(query);
  }

  function toggle(key, value) {
    const word = `${key}:${/[\s"]/.test(value) || !value ? `"${value.replaceAll('"', "")}"` : value}`;
    const words = query.match(/-?(?:[a-z_]+:)?(?:"[^"]*"?|\S+)/g) ?? [];
    choose((words.includes(word) ? words.filter((each) => each !== word) : [...words, word]).join(" "));
  }

  function changed(page, error) {
    replace(wrong, error ? error.message : "");
    if (!page) return;
    const words = RESULTS.filter((word) => page.counts[word]).map((word) => [" ", result(word), ` ${format.count(page.counts[word])}`]);
    replace(counted, h("b", null, page.total === page.of ? format.plural(page.of, "trial") : `${format.count(page.total)} of ${format.plural(page.of, "trial")}`), words);
    drawFacets(page.facets);
    drawRates(page);
  }

  function drawFacets(facets) {
    const open = new Set([...side.querySelectorAll("details[open]")].map((each) => each.dataset.key));
    const first = !side.childElementCount;
    replace(side, Object.entries(facets).filter(([key, values]) => shows(key, values)).map(([key, values]) =>
      h("details", { data: { key }, open: first ? innerWidth > 1000 && Object.keys(values).length <= 12 : open.has(key) }, h("summary", null, key),
        h("ul", null, Object.entries(values).slice(0, 200).map(([value, count]) => {
          const on = query.includes(`${key}:${value}`) || query.includes(`${key}:"${value}"`);
          return h("li", null, h("button.facet", { "aria-pressed": on ? "true" : "false", onclick: () => toggle(key, value), title: value },
            h("span.cut", null, key === "result" ? result(value) : value), h("span.number", null, format.count(count))));
        })))));
  }

  const shows = (key, values) => Object.keys(values).length > 1 || (Object.keys(values).length && (query.includes(`${key}:`) || ["check", "finding", "lost"].includes(key)));

  function drawRates(page) {
    const chosen = query.trim() && page.agents;
    const agents = chosen ? page.agents : found.agents;
    const words = !query.trim() ? "" : chosen ? "of the chosen trials" : "of all trials: a selection by what came of them has no rate that means anything";
    replace(rates, words ? h("p.muted.small", null, `rates ${words}`) : null, agents.length ? rateTable(agents) : null,
      found.notes.map((note) => h("p.note", null, note)));
  }

  function draw() {
    replace(head, heading(found));
  }

  async function refresh() {
    const next = await ask("run", { run: name });
    if (next !== found) {
      found = next;
      draw();
    }
    await list.refresh();
  }

  draw();
  const keys = { ...list.keys, "/": () => input.focus() };
  return { root, crumbs: [[to("runs"), "runs"], ["", name]], refresh, keys, close: list.close,
    live: () => ["running", "silent"].includes(found.state), ready: () => choose(query) };
}

function heading(found) {
  const counts = found.agents.reduce((sum, agent) => {
    for (const word of RESULTS) sum[word] = (sum[word] ?? 0) + agent.counts[word];
    return sum;
  }, {});
  const now = Object.entries(found.phases).map(([word, count]) => `${format.count(count)} ${word}`);
  const waits = Object.entries(found.waits).map(([word, count]) => `${format.count(count)} wait: ${word}`);
  const lost = Object.entries(found.failed_launches).map(([word, count]) => `${format.count(count)} × ${word}`);
  const limit = found.limit_usd === null ? "" : ` of at most ${format.dollars(found.limit_usd)}`;
  const items = [
    ["ended", `${format.count(found.planned - found.left)} of ${format.count(found.planned)}${found.to_grade ? `, ${format.count(found.to_grade)} to grade` : ""}`],
    ["now", [...now, ...waits].join(", ")],
    ["left", found.eta_s && found.left ? `about ${format.seconds(found.eta_s)}` : ""],
    ["spent", (found.spent_nano_usd === null ? "unknown" : format.nano(found.spent_nano_usd)) + limit],
    ["lost launches", lost.join(", ")],
    ["stopped by", found.stop ?? ""],
    ["driver said", found.released ?? ""],
    ["suite", `${found.suite} ${found.suite_digest}`],
    ["submitted", format.time(found.created_at)],
    ["commit", found.commit ? `${found.commit.slice(0, 12)}${found.dirty ? " with changes" : ""}` : ""],
    ["where", found.backend === "none" ? "imported" : `${found.backend}/${found.pool}`],
  ];
  return [
    h("div.bar", null, h("h1", null, found.run), state(found.state), meter(counts, found.planned)),
    h("dl.inline", null, items.filter(([, value]) => value).map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value)))),
  ];
}

function rateTable(agents) {
  const heads = ["agent", "pass rate", "", "95% interval", "passed", "failed", "abstained", "graded", "planned", "coverage", "pass^k", "cost a trial", "work p50 / p95", "steps p50 / p95", "endings"];
  return h("div.scroll", null, h("table.list.tight", null,
    h("thead", null, h("tr", null, heads.map((word, place) => h("th", { scope: "col", class: place > 0 && place !== 2 && place < 14 ? "number" : null }, word)))),
    h("tbody", null, agents.map(rateRow))));
}

function rateRow(agent) {
  const rate = agent.pass_rate;
  const counts = agent.counts;
  const graded = counts.passed + counts.failed + counts.abstained;
  const ks = Object.keys(agent.pass_hat_k);
  const k = ks[ks.length - 1];
  const endings = Object.entries(agent.termination_reason).map(([word, count]) => `${word}\u00a0${format.count(count)}`).join(", ");
  const pair = (dist, show) => (dist.n ? `${show(dist.p50)} / ${show(dist.p95)}` : format.NONE);
  return h("tr", null,
    h("th.name", { scope: "row" }, agent.agent),
    h("td.number.strong", { title: rate.reason ?? `${rate.numerator} of ${rate.denominator}` }, format.percent(rate.value)),
    h("td", null, interval(rate)),
    h("td.number.muted", { title: rate.method ?? "" }, rate.ci_low === null ? format.NONE : `${format.percent(rate.ci_low)} to ${format.percent(rate.ci_high)}`),
    ...["passed", "failed", "abstained"].map((word) => h("td.number", null, format.count(counts[word]))),
    h("td.number", null, format.count(graded)),
    h("td.number", null, format.count(counts.planned)),
    h("td.number", null, format.percent(rate.coverage)),
    h("td.number", { title: k ? `all of ${k} attempts pass` : "" }, k ? `${format.percent(agent.pass_hat_k[k].value)} (k=${k})` : format.NONE),
    h("td.number", null, agent.cost_usd.n ? format.dollars(agent.cost_usd.mean) : agent.cost_usd.missing ? "unknown" : format.NONE),
    h("td.number", null, pair(agent.latency_s, format.seconds)),
    h("td.number", null, pair(agent.steps, (value) => String(Math.round(10 * value) / 10))),
    h("td.muted.endings", null, endings));
}

const METRICS = [
  ["tool_call_validity", "valid calls"], ["tool_selection_accuracy", "fitting tool"], ["verification_failures", "verify failed"],
  ["unverified_claims", "unverified"], ["recovery_rate", "recovered"], ["context_exhaustion", "window full"],
];

/** The trajectory metrics, which may take a while: asked for when somebody opens them. */
function onTheWay(run) {
  const body = h("div");
  const open = async (event) => {
    if (!event.target.open) return;
    try {
      const found = await ask("metrics", { run });
      const rows = found.agents.flatMap((agent) => Object.entries(agent.metrics).map(([form, metrics]) => [agent.agent, form, metrics]))
        .filter(([, , metrics]) => METRICS.slice(0, -1).some(([key]) => metrics[key].denominator));
      replace(body, found.notes.map((note) => h("p.note", null, note)), rows.length ? metricTable(rows) : h("p.muted", null, "no call of a tool is known"));
    } catch (error) {
      replace(body, h("p.problem", null, error.message));
    }
  };
  return h("details.way", { ontoggle: open }, h("summary", null, "On the way", h("span.muted.small", null, " tools, verification, recovery; gateway: seen by us, agent: only reported")), body);
}

function metricTable(rows) {
  const cell = (rate) => h("td.number", { title: rate.reason ?? rate.method ?? "" },
    rate.value === null ? format.NONE : [format.percent(rate.value), h("span.muted", null, ` of ${format.count(rate.denominator)}`)]);
  return h("div.scroll", null, h("table.list.tight", null,
    h("thead", null, h("tr", null, ["agent", "form"].map((word) => h("th", { scope: "col" }, word)), METRICS.map(([, word]) => h("th.number", { scope: "col" }, word)))),
    h("tbody", null, rows.map(([agent, form, metrics]) => h("tr", null, h("th", { scope: "row" }, agent), h("td.muted", null, form), METRICS.map(([key]) => cell(metrics[key])))))));
}
