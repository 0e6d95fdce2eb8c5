// Numbers and texts as they are shown; `reports/formats` does the same for the other formats. The page's data holds
// nothing that cannot be seen: `data.py` has written it out.

const FIELD = 200;
function short(value, most = FIELD) {
  const text = String(value);
  return text.length <= most ? text : `${text.slice(0, most - 3)}...`;
}

// Three significant digits, and no exponent where that stays short.
function number(value) {
  if (value === 0 || !Number.isFinite(value)) return String(value);
  const [, exponent] = value.toExponential(2).split("e").map(Number);
  if (exponent < -5 || exponent >= 7) return value.toExponential(2).replace(/(?<=[+-])(?=\d$)/, "0");
  return value.toFixed(Math.max(0, 2 - exponent));
}

// The wider side of an interval, in per cent, rounded up.
function deviation([value, low, high]) {
  if (low === null || high === null) return "";
  const larger = 100 * Math.max(high / value - 1, 1 - low / value);
  return larger < 999 ? `±${Math.max(1, Math.ceil(larger - 1e-9))}%` : "±>999%";
}

const ends = ([, low, high]) => (low === null || high === null ? "" : `${number(low)} to ${number(high)}`);
const counted = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : noun.endsWith("ch") ? "es" : "s"}`;
const spaced = (name) => String(name).replaceAll("_", " ");
const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
const maybe = (value, shown = number) => (isNumber(value) ? shown(value) : "–");

function inSeconds(value) {
  const [factor, unit] = value >= 1 ? [1, "s"] : value >= 1e-3 ? [1e3, "ms"] : value >= 1e-6 ? [1e6, "µs"] : [1e9, "ns"];
  return `${number(value * factor)} ${unit}`;
}

function inBytes(value) {
  return value >= 2 ** 30 ? `${number(value / 2 ** 30)} GiB` : `${number(value / 2 ** 20)} MiB`;
}

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}
