// Where the page is: `#/run/ID?q=…`. Everything that a reader chose stands in the address, so that going back goes back.

export function parse(hash) {
  const [path, query] = hash.replace(/^#/, "").split("?", 2);
  let parts;
  try {
    parts = path.split("/").filter(Boolean).map(decodeURIComponent);
  } catch {
    parts = [];
  }
  return { name: parts[0] ?? "runs", parts: parts.slice(1), query: new URLSearchParams(query ?? "") };
}

export function to(name, parts = [], query = {}) {
  const path = ["", name, ...parts.map(encodeURIComponent)].join("/");
  const found = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) if (value) found.set(key, value);
  const text = found.toString();
  return text ? `${path}?${text}` : path;
}

export const go = (hash) => {
  location.hash = hash;
};

/** Changes the address without a step back for each letter that is typed. */
export const stay = (hash) => history.replaceState(null, "", `#${hash}`);
