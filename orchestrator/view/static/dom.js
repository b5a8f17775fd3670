// Elements from values. All text gets into the page here, as text nodes; nothing is ever read as markup.

// What cannot be seen, or moves what can: controls, format and bidi characters, lone surrogates, private and unassigned ones, separators,
// and letters without a shape.
const UNSEEN =
  /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\u{e0100}-\u{e01ef}]/gu;
const NAMES = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };
const MOST_MARKS = 20000; // of one text; what follows them is shown without

function mark(character, lines) {
  if (lines && (character === "\n" || character === "\t")) return null;
  const code = character.codePointAt(0);
  if (NAMES[character]) return NAMES[character];
  return code < 0x100 ? `\\x${code.toString(16).padStart(2, "0")}` : `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
}

/** Foreign text as nodes: every character can be seen. `lines`: newlines and tabs are layout. */
export function seen(text, { lines = false } = {}) {
  const found = document.createDocumentFragment();
  let begin = 0;
  let marks = 0;
  const whole = String(text);
  for (const match of whole.matchAll(UNSEEN)) {
    const word = mark(match[0], lines);
    if (word === null) continue;
    if (match.index > begin) found.append(whole.slice(begin, match.index));
    const shown = document.createElement("span");
    shown.className = "unseen";
    shown.textContent = word;
    found.append(shown);
    begin = match.index + match[0].length;
    if (++marks >= MOST_MARKS) {
      found.append(` … ${whole.length - begin} more characters, too many of them unseen`);
      return found;
    }
  }
  if (begin < whole.length) found.append(whole.slice(begin));
  return found;
}

/**
 * An element. Strings among the children are foreign unless proven otherwise, so they go through `seen`.
 * Attributes: `on…` is a listener, `data` a map, null and false are left out.
 */
export function h(tag, attributes, ...children) {
  const [name, ...classes] = tag.split(".");
  const element = document.createElement(name);
  if (classes.length) element.className = classes.join(" ");
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "class") element.className = `${element.className} ${value}`.trim();
    else if (key === "data") Object.assign(element.dataset, value);
    else element.setAttribute(key, value === true ? "" : plain(value));
  }
  put(element, children);
  return element;
}

function put(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : seen(child));
  }
}

/** Text for an attribute, which has no room for elements: unseen characters are written out. */
export function plain(text) {
  return String(text).replace(UNSEEN, (character) => mark(character, false));
}

export function replace(element, ...children) {
  element.replaceChildren();
  put(element, children);
  return element;
}

/** A link inside of this page. No other kind is ever made. */
export function link(hash, attributes, ...children) {
  return h("a", { ...attributes, href: `#${hash}` }, ...children);
}

/** Says something to people who cannot see what changed, and to those who can. */
export function say(text) {
  const place = document.getElementById("said");
  replace(place, text);
  clearTimeout(say.timer);
  say.timer = setTimeout(() => replace(place), 5000);
}
