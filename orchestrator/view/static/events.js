// What a trial did: events in order, filtered and searched by the process behind the page, loaded as they are scrolled to.

import { ask } from "./api.js";
import { h, replace } from "./dom.js";
import * as format from "./format.js";
import { cursor } from "./keys.js";
import { folded } from "./parts.js";

const PAGE = 60;
const LINES = { model_request: 8, model_response: 40, tool_call: 24, tool_result: 14 };
const MONEY = new Set(["cost_nano_usd"]);
const TIMES = new Set(["seconds", "waited_s", "first_token_s", "end_in_s", "waiting_s", "max_wall_seconds", "hard_wall_seconds"]);
const SIZES = new Set(["sent", "received"]);
const BAD = new Set(["no", "error", "refused", "timeout", "invalid", "failed", "no tool of this request"]);

/** Puts a list of events into `parent`; `where` names the trial, `first` where to begin. */
export function events(parent, where, { seq = null } = {}) {
  let types = new Set();
  let text = "";
  let begin = 0;
  let page = null;
  let total = 0;
  let loading = false;
  let asked = new AbortController();
  const chips = h("div.chips", { role: "group", "aria-label": "kinds of events" });
  const search = h("input.filter", { type: "search", placeholder: "search what was said and done", "aria-label": "search events", oninput: typed });
  const counted = h("span.muted.small");
  const earlier = h("button.link.earlier", { onclick: back }, "earlier events");
  const list = h("ol.events", { onclick: (event) => event.target.dataset.jump && jump(Number(event.target.dataset.jump)) });
  const end = h("div.end");
  const wrong = h("p.problem", { role: "alert" });
  parent.append(h("div.bar.sticky.tools", null, chips, search, counted), wrong, earlier, list, end);
  const observer = new IntersectionObserver((found) => found.some((each) => each.isIntersecting) && next(), { rootMargin: "800px" });
  let timer = 0;

  function typed() {
    clearTimeout(timer);
    timer = setTimeout(() => {
      text = search.value;
      restart(0);
    }, 250);
  }

  function drawChips(counts) {
    replace(chips, Object.entries(counts).map(([type, count]) =>
      h("button.chip", { class: `kind-${type}`, "aria-pressed": types.has(type) ? "true" : "false", onclick: () => toggle(type) },
        format.words(type), h("span.number", null, format.count(count)))));
  }

  function toggle(type) {
    if (!types.delete(type)) types.add(type);
    restart(0);
  }

  const question = (from, count = PAGE) => ask("events", { ...where, types: [...types].join(","), q: text, from, count }, asked.signal);

  async function restart(from) {
    asked.abort();
    asked = new AbortController();
    loading = false;
    begin = Math.max(0, from);
    list.replaceChildren();
    end.replaceChildren();
    observer.unobserve(end);
    await next();
    observer.observe(end);
  }

  async function next() {
    if (loading || (page && list.childElementCount && begin + list.childElementCount >= total)) return;
    const mine = asked;
    loading = true;
    try {
      const found = await question(begin + list.childElementCount);
      if (mine !== asked) return;
      take(found);
      replace(wrong);
    } catch (error) {
      if (error.name !== "AbortError") replace(wrong, error.message);
    } finally {
      if (mine === asked) loading = false;
    }
  }

  function take(found) {
    page = found;
    total = found.total;
    for (const event of found.events) list.append(item(event, page.start, where));
    about();
    mark(list, text);
  }

  function about() {
    drawChips(page.counts);
    replace(counted, total === page.of ? format.plural(page.of, "event") : `${format.count(total)} of ${format.plural(page.of, "event")}`,
      page.steps ? `, ${format.plural(page.steps, "step")}` : "");
    earlier.hidden = begin === 0;
    const shown = begin + list.childElementCount;
    replace(end, !page.of ? "no event yet" : !total ? "no event fits" : shown < total ? "…" : page.closed ? "" : "so far");
  }

  /** Shows one event, wherever it is. */
  async function jump(number) {
    const find = () => [...list.children].find((one) => Number(one.dataset.seq) === number);
    if (!find()) {
      types.clear();
      search.value = text = "";
      await restart(number);
    }
    for (const one of list.querySelectorAll(".current")) one.classList.remove("current");
    const found = find();
    found?.classList.add("current");
    found?.scrollIntoView({ block: "center" });
  }

  async function back() {
    const from = Math.max(0, begin - PAGE);
    const found = await question(from, begin - from);
    const height = document.documentElement.scrollHeight;
    list.prepend(...found.events.map((event) => item(event, found.start, where)));
    begin = from;
    about();
    scrollBy(0, document.documentElement.scrollHeight - height);
  }

  async function refresh() {
    if (!page) return restart(0);
    if (page.closed || loading) return;
    const mine = asked;
    const held = list.childElementCount;
    const atEnd = begin + held >= total;
    const found = await question(begin + held);
    if (mine !== asked || loading || held !== list.childElementCount) return;
    if (found.of < page.of) return restart(0); // another launch has begun
    if (found.total === total && found.of === page.of && found.closed === page.closed) return;
    if (atEnd) return take(found);
    page = found;
    total = found.total;
    about();
  }

  const keys = cursor(() => [...list.children], (one) => one.querySelector("button.link, button.raw")?.click());
  keys["/"] = () => search.focus();
  keys.G = async () => {
    await restart(Math.max(0, total - PAGE));
    list.lastElementChild?.scrollIntoView({ block: "nearest" });
  };
  keys.g = async () => {
    await restart(0);
    scrollTo(0, 0);
  };
  const close = () => {
    asked.abort();
    observer.disconnect();
    mark(list, "");
  };
  const ready = seq === null ? restart(0) : jump(seq);
  return { refresh, keys, close, ready, live: () => Boolean(page && !page.closed), known: () => page !== null };
}

/** Marks where a text stands, without touching the page's elements. */
function mark(list, text) {
  if (!CSS.highlights) return;
  CSS.highlights.delete("found");
  if (!text) return;
  const ranges = [];
  const walker = document.createTreeWalker(list, NodeFilter.SHOW_TEXT);
  while (walker.nextNode() && ranges.length < 2000) {
    const whole = walker.currentNode.data.toLowerCase();
    for (let place = whole.indexOf(text.toLowerCase()); place >= 0; place = whole.indexOf(text.toLowerCase(), place + text.length)) {
      ranges.push(new StaticRange({ startContainer: walker.currentNode, startOffset: place, endContainer: walker.currentNode, endOffset: place + text.length }));
    }
  }
  CSS.highlights.set("found", new Highlight(...ranges));
}

/** One event. */
export function item(event, start, where, { brief = false } = {}) {
  const whole = (pointer) => (from) => ask("event", { ...where, seq: event.seq, pointer, from });
  const more = h("div.raws");
  const raw = h("button.raw", { title: "the whole event as JSON", "aria-label": `event ${event.seq} as JSON`, "aria-expanded": "false", onclick: toggleRaw }, "{}");
  async function toggleRaw() {
    if (more.childElementCount) {
      more.replaceChildren();
      raw.setAttribute("aria-expanded", "false");
      return;
    }
    try {
      const found = await whole("")(0);
      replace(more, folded(found.text, found.chars, { lines: 60, kind: "json", whole: whole("") }));
      raw.setAttribute("aria-expanded", "true");
    } catch (error) {
      replace(more, h("p.problem", null, error.message));
    }
  }
  const link = event.other === undefined ? null : h("span.fact", null,
    h("button.link", { data: { jump: event.other } }, event.type === "tool_result" ? `of #${event.other}` : `result #${event.other}`),
    event.source === "agent" && event.t ? ` after ${format.seconds(event.apart_s)}` : "");
  return h("li.event", { class: `kind-${event.type}`, data: { seq: event.seq } },
    h("div.when", null, h("span", null, event.t ? `+${format.seconds(Math.max(0, event.t - (start ?? event.t)))}` : format.NONE), h("span.seq", null, `#${event.seq}`)),
    h("div.what", null, h("b", null, format.words(event.type)),
      event.source === "agent" ? h("span.tag", { title: "only reported in the model's traffic, not seen to happen" }, "reported") : null,
      event.type === "model_request" ? h("span.tag", null, `step ${event.step}`) : null,
      event.conversation ? h("span.tag", { title: "a conversation beside the first" }, `conversation ${event.conversation}`) : null),
    h("div.body", null,
      h("div.line", null, event.title ? h("strong", null, event.title) : null, event.facts.map(fact), link, raw),
      (brief && event.type === "model_request" ? [] : event.blocks).map((block) => h("div.block", { class: `is-${block.kind}${isShort(block) ? " short" : ""}` },
        block.label ? h("span.label", null, block.label) : null,
        folded(block.text, block.chars, { lines: LINES[event.type] ?? 20, kind: block.kind, whole: whole(block.pointer) }))),
      event.left_out ? h("p.muted.small", null, `${format.plural(event.left_out, "more text")}: {}`) : null,
      more));
}

const isShort = (block) => block.label && block.label.length <= 24 && block.chars <= 100 && !block.text.includes("\n");

const NAMES = { seconds: "took", cost_nano_usd: "cost", first_token_s: "first token" };

function fact([name, value]) {
  let shown = value;
  if (MONEY.has(name) && typeof value === "number") shown = format.nano(value);
  else if (TIMES.has(name) && typeof value === "number") shown = format.seconds(value);
  else if (SIZES.has(name) && typeof value === "number") shown = format.bytes(value);
  else if (typeof value === "number") shown = Number.isInteger(value) ? format.count(value) : String(value);
  const label = NAMES[name] ?? format.words(name.replace(/_s$/, ""));
  return h("span.fact", { class: BAD.has(value) ? "bad" : null }, h("i", null, label), " ", shown);
}
