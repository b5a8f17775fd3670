// Questions to the process behind the page. An answer that has not changed comes back as the same object.

const known = new Map();
const MOST_KNOWN = 60;

export class AskError extends Error {}

/** Asks `api/NAME?…`; parameters that are null, undefined or empty are left out. */
export async function ask(name, parameters = {}, signal = undefined) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(parameters)) {
    if (value !== null && value !== undefined && value !== "") query.set(key, String(value));
  }
  const url = `api/${name}?${query}`;
  const before = known.get(url);
  let answer;
  try {
    answer = await fetch(url, { signal, cache: "no-store", headers: before ? { "If-None-Match": before.tag } : {} });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new AskError("the process behind this page does not answer; start it again: orchestrate view");
  }
  if (answer.status === 304 && before) return before.value;
  let value;
  try {
    value = await answer.json();
  } catch {
    throw new AskError(`the process behind this page answered ${answer.status}`);
  }
  if (!answer.ok) throw new AskError(value.error ?? `status ${answer.status}`);
  known.delete(url);
  known.set(url, { tag: answer.headers.get("ETag"), value });
  if (known.size > MOST_KNOWN) known.delete(known.keys().next().value);
  return value;
}
