// Numbers as people read them, in the words of the report.

export const NONE = "–";
const whole = new Intl.NumberFormat("en-US");

export const count = (value) => (value === null || value === undefined ? NONE : whole.format(value));
export const plural = (value, word) => `${count(value)} ${word}${value === 1 ? "" : "s"}`;
export const percent = (value) => (value === null || value === undefined ? NONE : `${(100 * value).toFixed(1)}%`);

export function seconds(value) {
  if (value === null || value === undefined) return NONE;
  if (value >= 7200) return `${Math.floor(value / 3600)}h ${String(Math.floor((value % 3600) / 60)).padStart(2, "0")}m`;
  if (value >= 120) return `${Math.floor(value / 60)}m ${String(Math.floor(value % 60)).padStart(2, "0")}s`;
  if (value < 0.0995) return `${Math.round(value * 1000)}ms`;
  return value < 10 ? `${value.toFixed(1)}s` : `${Math.round(value)}s`;
}

export function dollars(value) {
  if (value === null || value === undefined) return NONE;
  if (value === 0) return "$0.00";
  if (value >= 1) return `$${value.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`;
  const digits = value >= 0.0001 ? 4 : 9;
  return `$${value.toFixed(digits)}`;
}

export const nano = (value) => (value === null || value === undefined ? NONE : dollars(value / 1e9));

export function bytes(value) {
  if (value === null || value === undefined) return NONE;
  const units = ["B", "kB", "MB", "GB"];
  let left = value;
  while (left >= 999.5 && units.length > 1) {
    left /= 1000;
    units.shift();
  }
  return `${units[0] === "B" || left >= 99.95 ? left.toFixed(0) : left.toFixed(1)} ${units[0]}`;
}

export function age(iso, now = Date.now()) {
  if (!iso) return NONE;
  const passed = Math.max(0, (now - Date.parse(iso)) / 1000);
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["m", 60]]) {
    if (passed >= size) return `${Math.floor(passed / size)}${unit}`;
  }
  return `${Math.floor(passed)}s`;
}

export const time = (iso) => (iso ? `${iso.slice(0, 10)} ${iso.slice(11, 16)} UTC` : NONE);
export const clock = (unix) => (unix ? time(new Date(unix * 1000).toISOString()) : NONE);
export const words = (text) => String(text).replaceAll("_", " ");
