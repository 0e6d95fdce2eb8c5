// What the runs before found of a cell: its nights, with the changes of its level.

function nightsOf(cell) {
  return (cell.histories ?? []).map((history) => {
    const ratios = history.kind === "ratio";
    const key = `One point for each night (run) of its store, the newest ${history.nights.length}, with its 95 % interval; hollow: disturbed by other programs throughout. ${capitalised(history.caveat)}.`;
    const changes = history.changes.map((change) => make("li", {}, changeWords(history, change)));
    return part(
      ratios ? "By night, candidate over baseline" : "By night",
      make("figure", {}, wide("By night", nightsPicture(history, ratios)), make("figcaption", {}, key)),
      changes.length ? make("ul", {}, ...changes) : make("p", {}, history.enough ? "No change of its level is found in these nights." : "Too few nights to look for a change of its level."),
      make("details", {}, make("summary", {}, counted(history.nights.length, "night")), nightsTable(history, ratios)),
    );
  });
}

const capitalised = (text) => text.charAt(0).toUpperCase() + text.slice(1);
const dayOf = (night) => night.started.slice(0, 10);

function changeWords({ nights }, { place, numbers, pending }) {
  const doubt = pending ? ", not confirmed yet: too few nights since" : "";
  return `From ${dayOf(nights[place])} on ${number(numbers[0])}× the time (${ends(numbers)})${doubt}.`;
}

function nightsPicture({ nights, changes }, ratios) {
  const values = nights.flatMap(({ numbers }) => numbers.filter(isNumber));
  const y = ratios ? { ...scale(values), unit: "" } : timeScale(values);
  if (ratios) y.words = (value) => `${number(value)}×`;
  const x = scale([0, nights.length - 1], (place) => (nights[place] ? dayOf(nights[place]).slice(5) : ""), true);
  const title = ratios ? "candidate / baseline" : `time of a step, ${y.unit}`;
  const { svg, px, py } = frame(`${counted(nights.length, "night")} of this cell; the table has their numbers`, "night (month-day, UTC)", title, x, y);
  for (const { place } of changes) svg.append(drawn("path", { class: "median", d: `M${px(place - 0.5)} ${SIZE.top}V${SIZE.height - SIZE.bottom}` }));
  nights.forEach(({ numbers: [value, low, high], searched, run }, place) => {
    const point = drawn("g", {}, drawn("title", {}, `${short(run)}: ${number(value)}`));
    if (isNumber(low)) point.append(drawn("path", { class: "line", d: `M${px(place)} ${py(low)}V${py(high)}` }));
    point.append(drawn("circle", { class: `dot ${searched ? "counts" : "apart"}`, cx: px(place), cy: py(value), r: 3 }));
    svg.append(point);
  });
  return svg;
}

function nightsTable({ nights }, ratios) {
  const heads = ["night (UTC)", "run", ratios ? "ratio" : "seconds", "95 % interval", "disturbed"];
  const rows = [...nights].reverse().map((night) => {
    const fields = [short(night.run), number(night.numbers[0]), ends(night.numbers) || "–", night.searched ? "no" : "yes"];
    const name = make("th", { scope: "row" }, night.started.replace("T", " ").slice(0, 16));
    return make("tr", {}, name, ...fields.map((text) => make("td", {}, text)));
  });
  const head = make("tr", {}, ...heads.map((text) => make("th", { scope: "col" }, text)));
  return wide("Nights", make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows)));
}
