// Small pictures of one cell: every step of its launches, and its launches by the time of day.

const SIZE = { width: 720, height: 260, left: 64, right: 24, top: 12, bottom: 40 };
const WARMUP_SHOWN_UP_TO = 1.5; // times the slowest timed step; a slower warm-up step stands at the edge as a triangle

function frame(label, xTitle, yTitle, x, y) {
  const { width, height, left, right, top, bottom } = SIZE;
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label, class: "plot" });
  const px = (value) => left + ((value - x.low) / (x.high - x.low)) * (width - left - right);
  const py = (value) => height - bottom - ((value - y.low) / (y.high - y.low)) * (height - top - bottom);
  for (const tick of y.ticks) {
    svg.append(drawn("path", { class: "grid", d: `M${left} ${py(tick)}H${width - right}` }));
    svg.append(drawn("text", { x: left - 6, y: py(tick) + 4, "text-anchor": "end" }, y.words(tick)));
  }
  for (const tick of x.ticks) {
    svg.append(drawn("path", { class: "axis", d: `M${px(tick)} ${height - bottom}v4` }));
    svg.append(drawn("text", { x: px(tick), y: height - bottom + 16, "text-anchor": "middle" }, x.words(tick)));
  }
  svg.append(drawn("path", { class: "axis", d: `M${left} ${top}V${height - bottom}H${width - right}` }));
  svg.append(drawn("text", { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, xTitle));
  const middle = (top + height - bottom) / 2;
  svg.append(drawn("text", { transform: `translate(14 ${middle}) rotate(-90)`, "text-anchor": "middle" }, yTitle));
  return { svg, px, py };
}

// Ends and round ticks of an axis.
function scale(values, words = String, whole = false) {
  let [low, high] = [Math.min(...values), Math.max(...values)];
  const margin = (high - low || Math.abs(high) * 0.1 || 1) * 0.06;
  [low, high] = [low - margin, high + margin];
  const rough = (high - low) / 5;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(whole ? 1 : 0, power * [1, 2, 5, 10].find((each) => each * power >= rough));
  const ticks = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high; tick += step) ticks.push(Math.round(tick / step) * step);
  return { low, high, ticks, words, step };
}

// Times of one picture share a unit.
function timeScale(values) {
  const [factor, unit] = [[1, "s"], [1e3, "ms"], [1e6, "µs"], [1e9, "ns"]].find(([f]) => Math.max(...values) * f >= 1) ?? [1e9, "ns"];
  const found = scale(values);
  const digits = Math.max(0, -Math.floor(Math.log10(found.step * factor) + 1e-9));
  return { ...found, unit, words: (value) => (value * factor).toFixed(digits) };
}

// A point: filled if its launch counts, hollow if not; a cross if other programs disturbed it.
function point(launch, x, y) {
  const kind = launch.counts ? "counts" : "apart";
  if (launch.disturbed) return drawn("path", { class: `cross ${kind}`, d: `M${x - 3} ${y - 3}l6 6m0 -6l-6 6` });
  return drawn("circle", { class: `dot ${kind}`, cx: x, cy: y, r: 2.6 });
}

const secondsOf = (launch) => launch.samples_ns.map((each) => (each * 1e-9) / launch.steps_per_sample);
const warmupOf = (launch) => launch.warmup_ns.map((each) => each * 1e-9);

function stepsPicture(cell, thinned) {
  const launches = cell.launches.filter(({ samples_ns: samples }) => samples.length);
  if (!launches.length) return null;
  const timed = launches.flatMap(secondsOf);
  const edge = timed.reduce((most, each) => Math.max(most, each), 0) * WARMUP_SHOWN_UP_TO;
  const middle = cell.numbers.seconds ?? [];
  const y = timeScale([...range(timed), ...range(launches.flatMap(warmupOf).filter((each) => each <= edge)), ...middle.filter(isNumber)]);
  const last = Math.max(...launches.map((each) => each.samples_ns.length * each.steps_per_sample * thinned));
  const before = Math.max(0, ...launches.map(({ warmup_ns: steps }) => steps.length));
  const x = scale([-before, last], String, true);
  const { svg, px, py } = frame(`Seconds of every step of ${counted(launches.length, "launch")}; the table has their medians`, "step (warm-up before 0)", `time of a step, ${y.unit}`, x, y);
  if (before) {
    svg.prepend(drawn("rect", { class: "warmup", x: SIZE.left, y: SIZE.top, width: px(-0.5) - SIZE.left, height: SIZE.height - SIZE.top - SIZE.bottom }));
  }
  if (isNumber(middle[1])) {
    svg.append(drawn("rect", { class: "interval", x: px(0), y: py(middle[2]), width: px(last) - px(0), height: Math.max(1, py(middle[1]) - py(middle[2])) }));
  }
  if (isNumber(middle[0])) svg.append(drawn("path", { class: "median", d: `M${px(0)} ${py(middle[0])}H${px(last)}` }));
  for (const launch of launches) svg.append(stepsOf(launch, thinned, px, py, edge));
  return svg;
}

function stepsOf(launch, thinned, px, py, edge) {
  const found = drawn("g", {}, drawn("title", {}, launchName(launch)));
  const warmup = warmupOf(launch);
  warmup.forEach((seconds, place) => {
    const x = px(place - warmup.length);
    if (seconds > edge) found.append(drawn("path", { class: "over", d: `M${x - 4} ${SIZE.top + 8}h8l-4 -7z` }, drawn("title", {}, inSeconds(seconds))));
    else found.append(point({ ...launch, counts: false }, x, py(seconds)));
  });
  const places = secondsOf(launch).map((seconds, place) => [px((place * thinned + 0.5) * launch.steps_per_sample), py(seconds)]);
  if (places.length > 1) found.append(drawn("path", { class: "line", d: `M${places.map((each) => each.join(" ")).join("L")}` }));
  if (places.length <= 400) found.append(...places.map(([x, y]) => point(launch, x, y)));
  const [x, y] = places.at(-1);
  found.append(drawn("text", { class: "name", x: Math.min(x + 5, SIZE.width - 8), y: y + 4 }, launch.launch + 1));
  return found;
}

function range(values) {
  if (!values.length) return [];
  return [values.reduce((a, b) => Math.min(a, b)), values.reduce((a, b) => Math.max(a, b))];
}

function daysPicture(cell) {
  const launches = cell.launches.filter(({ samples_ns: samples }) => samples.length);
  if (launches.length < 2) return null;
  const times = launches.map(({ started }) => Date.parse(started) / 60000);
  const medians = launches.map((launch) => median(secondsOf(launch)));
  const y = timeScale(medians);
  const long = Math.max(...times) - Math.min(...times) > 24 * 60;
  const words = (minutes) => {
    const text = new Date(minutes * 60000).toISOString();
    return long ? text.slice(5, 10) : text.slice(11, 16);
  };
  const x = scale(times, words, true);
  const { svg, px, py } = frame(`Medians of ${counted(launches.length, "launch")} by the time they started`, long ? "day (UTC)" : `time of day, UTC, ${launches[0].started.slice(0, 10)}`, `median, ${y.unit}`, x, y);
  launches.forEach((launch, place) => {
    const at = [px(times[place]), py(medians[place])];
    svg.append(drawn("g", {}, drawn("title", {}, `${launchName(launch)}: ${inSeconds(medians[place])}`), point(launch, ...at)));
    svg.append(drawn("text", { class: "name", x: at[0] + 6, y: at[1] + 4 }, launch.launch + 1));
  });
  return svg;
}

function launchName(launch) {
  const words = [`launch ${launch.launch + 1}`];
  if (launch.attempt) words.push(`attempt ${launch.attempt + 1}`);
  if (launch.disturbed) words.push("disturbed");
  if (!launch.counts) words.push("does not count");
  return words.join(", ");
}
