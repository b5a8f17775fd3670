// One trial: how it ended, what the grader saw, what it did, what it left.

import { ask } from "./api.js";
import { h, link, replace } from "./dom.js";
import { events } from "./events.js";
import * as format from "./format.js";
import { facts, folded, result } from "./parts.js";
import { go, stay, to } from "./route.js";

const TABS = [["transcript", "Transcript"], ["changes", "What it left"], ["output", "Output"]];
const MARKS = { true: ["ok", "✓"], false: ["bad", "✗"], null: ["odd", "?"] };

export async function trial(route) {
  const [run, name] = route.parts;
  const from = { q: route.query.get("q") ?? "", sort: route.query.get("sort") ?? "" };
  const asked = { run, trial: name, ...from };
  let found = await ask("trial", asked);
  let tab = route.query.get("tab") ?? "transcript";
  let launch = null;
  let at = Number(route.query.get("at")) || null;
  let open = null;
  const head = h("div.head");
  const side = h("aside.side", { "aria-label": "ending and verdict" });
  const tabs = h("div.tabs", { role: "tablist" });
  const panel = h("div.panel", { role: "tabpanel" });
  const others = h("section");
  const root = h("section.page", null, head, h("div.split.trial", null, side, h("div.grow", null, tabs, panel)));

  function draw() {
    replace(head, heading(found, run, from));
    replace(side, ending(found), verdict(found), questions(found), findings(found), launches(found, show), others);
    replace(tabs, TABS.map(([key, word]) => h("button.tab", { role: "tab", "aria-selected": key === tab ? "true" : "false", onclick: () => choose(key) }, word)));
  }

  function choose(key) {
    tab = key;
    stay(to("trial", [run, name], { ...from, tab: key === "transcript" ? "" : key }));
    draw();
    return fill();
  }

  function show(number) {
    launch = number;
    choose("transcript");
  }

  async function fill() {
    open?.close?.();
    open = null;
    panel.replaceChildren();
    if (tab === "transcript") {
      if (launch) panel.append(h("p.note", null, `launch ${launch} `, h("button.link", { onclick: () => show(null) }, "the one that counts")));
      if (launch || found.has.trajectory || isLeft()) {
        open = events(panel, { run, trial: name, launch }, { seq: at });
        at = null;
        return open.ready;
      }
    }
    const none = { transcript: found.has.trajectory || "no trajectory was kept", changes: found.has.state || "no state was frozen", output: found.has.output !== null || "no output was kept" }[tab];
    if (none !== true) return void panel.append(h("p.muted", null, none));
    panel.append(h("p.muted", null, "reading"));
    try {
      if (tab === "changes") replace(panel, changes(await ask("changes", { run, trial: name }), run, name));
      else replace(panel, output(await ask("output", { run, trial: name }), run, name));
    } catch (error) {
      replace(panel, h("p.muted", null, error.message));
    }
  }

  /** Whether something may come yet: the trial runs, or may run. */
  const isLeft = () => ["running", "silent"].includes(found.run_state) && ["missing", "infra"].includes(found.result);

  async function siblings() {
    const page = await ask("trials", { run, q: `task:${found.task.id}`, count: 60 });
    const rows = page.rows.filter((row) => row.trial !== name);
    replace(others, rows.length ? [h("h2", null, "Same task"), h("ul.siblings", null, rows.map((row) => h("li", null,
      link(to("trial", [run, row.trial], from), null, `@${row.agent}:${row.sample}`), result(row.result),
      link(to("compare", [run, name, row.trial], from), { class: "compare", "aria-label": `compare with ${row.trial}` }, "compare"))))] : null);
  }

  async function refresh() {
    const next = await ask("trial", asked);
    if (next !== found) {
      const before = found;
      found = next;
      draw();
      if (before.launches.length !== next.launches.length || (open && !open.known())) await fill();
    }
    await open?.refresh?.();
  }

  draw();
  const step = (where) => () => found.beside[where] && go(to("trial", [run, found.beside[where]], from));
  const own = {
    "[": step("previous"),
    "]": step("next"),
    c: () => others.querySelector("a.compare")?.focus(),
    1: () => choose("transcript"),
    2: () => choose("changes"),
    3: () => choose("output"),
  };
  return {
    root,
    crumbs: [[to("runs"), "runs"], [to("run", [run], from), run], ["", name]],
    refresh,
    get keys() {
      return { ...open?.keys, ...own };
    },
    close: () => open?.close?.(),
    live: isLeft,
    ready: () => Promise.all([fill(), siblings()]),
  };
}

function heading(found, run, from) {
  const beside = found.beside;
  const step = (name, word, key) => (beside[name]
    ? link(to("trial", [run, beside[name]], from), { class: "button", title: `${word} (${key})`, "aria-label": `${word} trial` }, key === "[" ? "‹" : "›")
    : h("span.button.off", { "aria-hidden": "true" }, key === "[" ? "‹" : "›"));
  return h("div.bar", null, h("h1", null, found.trial), result(found.result, "large"),
    found.result === found.graded_as ? null : h("span.tag", null, `graded as ${format.words(found.graded_as)}`),
    h("span.grow"),
    beside.place ? h("span.muted.small", null, `${format.count(beside.place)} of ${format.count(beside.total)}`) : null,
    step("previous", "previous", "["), step("next", "next", "]"));
}

function ending(found) {
  const outcome = found.outcome;
  const task = found.task;
  const asked = [["task", `tier ${task.tier}, ${task.kind}, expects ${format.words(task.expect)}`], ["agent", found.agent.type],
    ["models", [...new Set([...(outcome?.models ?? []), ...(outcome?.models?.length ? [] : Object.values(found.agent.models))])].join(", ")], ["image", task.image ?? ""]];
  if (!outcome) return h("section", null, h("h2", null, "Ending"), h("p.muted", null, "no launch has ended yet"), facts(asked));
  const exit = outcome.exit;
  const how = !exit ? "" : exit.signal !== null ? `signal ${exit.signal}` : `exit code ${exit.code}`;
  const use = outcome.usage;
  const most = found.budgets ?? {};
  const of = (used, limit, show = format.count) => (limit === null || limit === undefined ? show(used) : `${show(used)} of ${show(limit)}`);
  const total = use.uncached_input + use.cache_read + use.cache_write + use.output;
  const tells = (word) => !(outcome.unrecorded ?? []).includes(word);
  const cost = use.cost_nano_usd === null ? "unknown" : of(use.cost_nano_usd / 1e9, most.max_cost_usd, format.dollars);
  const final = outcome.final;
  return [
    h("section", null, h("h2", null, "Ending"),
      facts([["ended", `${format.words(outcome.termination_reason)}${how ? `, ${how}` : ""}`], ["error", outcome.error ?? ""], ...asked]),
      final ? [facts([["said", final.status], ["confidence", final.confidence], ...Object.entries(final.escalation)]),
        final.message ? folded(final.message, final.message.length, { lines: 10 }) : null] : h("p.muted.small", null, "said nothing: no ending was given")),
    h("section", null, h("h2", null, "Used"), facts([
      ["worked", tells("times") && of(outcome.times.working_s, most.max_wall_seconds, format.seconds)],
      ["waited", tells("waiting") && format.seconds(outcome.times.waiting_s)],
      ["steps", of(outcome.steps, most.max_steps)],
      ["tool calls", of(outcome.tool_calls, most.max_tool_calls)],
      ["tokens", tells("tokens") && of(total, most.max_tokens)],
      ["", [["uncached_input", "in"], ["cache_read", "cache read"], ["cache_write", "cache write"], ["cache_write_1h", "of it for an hour"], ["output", "out"], ["reasoning", "reasoning"]]
        .filter(([key]) => use[key]).map(([key, word]) => `${format.count(use[key])} ${word}`).join(", ")],
      ["cost", cost],
      ["user", outcome.user_usage?.output || outcome.user_usage?.uncached_input ? "simulated, " + (outcome.user_usage.cost_nano_usd === null ? "cost unknown" : format.nano(outcome.user_usage.cost_nano_usd)) : ""],
      ["started", tells("times") && format.clock(outcome.times.started)],
      ["not recorded", (outcome.unrecorded ?? []).join(", ")],
      ["sandbox", Object.entries(outcome.labels).map(([name, value]) => `${name}: ${value}`).join("; ")],
    ])),
  ];
}

function verdict(found) {
  const said = found.verdict;
  const title = h("h2", null, "Verdict");
  if (!said) return h("section", null, title, h("p.muted", null, "none"));
  const wrong = found.graded_as === "failed" && !found.failed_checks.length;
  return h("section", null, title,
    said.error ? h("p.problem", null, `${said.error.type} error: ${said.error.message}`) : null,
    wrong ? h("p.note", null, "every gate holds, but the ending is not the one that the task expects") : null,
    h("ul.checks", null, said.checks.map((one) => check(one, "")), said.invariants.map((one) => check(one, "invariant"))),
    h("p.muted.small", null, `grader ${said.grader_version || said.grader_digest.slice(0, 19)}`, found.verdicts.length > 1 ? `; ${found.verdicts.length} verdicts` : ""));
}

function check(one, kind) {
  const [word, sign] = MARKS[String(one.passed)];
  const say = (value) => (typeof value === "string" ? value : JSON.stringify(value));
  const told = typeof one.actual === "string" ? one.actual.split("; ") : [];
  const evidence = one.evidence.filter((line) => line !== one.actual && !told.includes(line)).join("\n");
  const rows = [["expected", one.expected], ["actual", one.actual]].filter(([, value]) => value !== null && value !== undefined);
  return h("li", null, h("details.check", { class: word, open: one.passed !== true },
    h("summary", null, h("i.sign", { "aria-label": { ok: "holds", bad: "does not hold", odd: "not known" }[word] }, sign), h("b", null, one.id),
      h("span.muted", null, [one.type, kind, one.gate ? "" : "reported only", format.seconds(one.seconds)].filter(Boolean).join(", "))),
    rows.map(([name, value]) => h("div.block", null, h("span.label", null, name), folded(say(value), say(value).length, { lines: 8 }))),
    evidence ? h("div.block", null, h("span.label", null, "evidence"), folded(evidence, evidence.length, { lines: 12 })) : null));
}

function questions(found) {
  const asked = found.outcome?.questions;
  if (!asked?.length) return null;
  return h("section", null, h("h2", null, "Asked the user"), h("ol.plain", null, asked.map((one) => h("li", null,
    h("div.foreign", null, one.question), h("span.muted.small", null, one.reply === null ? "no reply fitted" : `reply ${one.reply}`)))));
}

function findings(found) {
  const every = [...(found.outcome?.findings ?? []), ...(found.verdict?.findings ?? [])];
  if (!every.length) return null;
  return h("section", null, h("h2", null, "Findings"), h("ul.plain", null, every.map((one) =>
    h("li", null, h("b.warn", null, one.type), h("span.muted.small", null, ` seen by ${one.source} `), h("div.foreign", null, one.detail)))));
}

function launches(found, show) {
  if (found.launches.length < 2 && !found.launches.some((one) => one.error)) return null;
  return h("section", null, h("h2", null, "Launches"), h("ul.plain", null, found.launches.map((one) => h("li", null,
    h("b", null, `${one.launch} ${one.class}`), h("span.muted", null, ` ${one.ending}, ${format.seconds(one.working_s)}`),
    one.trajectory ? [" ", h("button.link", { onclick: () => show(one.launch) }, "transcript")] : null,
    one.error ? h("div.foreign", null, one.error) : null))));
}

function changes(found, run, name) {
  const counts = Object.entries(found.counts ?? {}).filter(([, count]) => count).map(([word, count]) => `${format.count(count)} ${word}`);
  const hint = `orchestrate pull ${run} ${name} DIR`;
  const all = Object.values(found.counts ?? {}).reduce((sum, count) => sum + count, 0);
  return [
    h("p", null, h("b", null, counts.join(", ") || (found.problem ? "" : "nothing was changed")), found.problem ? h("span.note", null, ` ${found.problem}`) : null),
    h("ul.plain.changes", null, [...found.paths].sort((one, other) => one.by_product - other.by_product).map(change)),
    all > found.paths.length ? h("p.muted", null, `${format.count(all - found.paths.length)} more; all of them into a folder: ${hint}`) : null,
  ];
}

function change(one) {
  const size = one.type === "file" && one.size !== undefined ? `${one.old_size === undefined ? "" : `${format.bytes(one.old_size)} → `}${format.bytes(one.size)}` : one.type;
  const lines = one.diff ?? [];
  const text = lines.join("\n");
  return h("li", { class: one.by_product ? "by-product" : null }, h("details", { open: lines.length > 0 && !one.by_product },
    h("summary", null, h("span.origin", { class: one.origin }, one.origin), h("b.mono.foreign", null, one.path), h("span.muted", null, size),
      one.target ? h("span.muted", null, `to ${one.target}`) : null, one.finding ? h("span.warn", null, one.finding) : null,
      one.by_product ? h("span.tag", { title: "diff checks ignore it" }, "by-product") : null),
    lines.length ? folded(text, text.length, { lines: 40, kind: "diff" }) : h("p.muted.small", null, one.type === "file" ? "not compared line by line" : ""),
    one.more_lines ? h("p.muted.small", null, `${format.count(one.more_lines)} more lines`) : null));
}

function output(found, run, name) {
  if (!found.bytes) return h("p.muted", null, "nothing was printed");
  const box = h("div");
  const draw = (piece) => {
    const before = piece.from ? h("button.link", { onclick: earlier }, `${format.bytes(piece.from)} before this`) : null;
    async function earlier() {
      draw(await ask("output", { run, trial: name, from: Math.max(0, piece.from - 200000) }));
    }
    replace(box, before, folded(piece.text, piece.text.length, { lines: 400, kind: "output" }),
      piece.end < piece.bytes ? h("p.muted.small", null, `${format.bytes(piece.bytes - piece.end)} follow`) : null);
  };
  draw(found);
  return box;
}
