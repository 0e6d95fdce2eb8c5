// One cell, opened: what its number rests on, and how to measure it again.

function fillCell(known, cell) {
  const dialog = find("cell");
  dialog.replaceChildren(
    make(
      "div",
      { class: "title" },
      make("h2", { id: "cell-heading" }, short(`${cell.row}, ${known.columns[cell.column].place}`)),
      button("Close", () => dialog.close(), { id: "cell-close" }),
      make("p", {}, short(`${cell.group} · ${known.machines[cell.machine].name}`, 500)),
    ),
    ...[numbersOf(known, cell), flagsOf(known, cell), ...launchesOf(known, cell), ...nightsOf(cell), againOf(known, cell), setUpOf(known, cell)].filter(Boolean),
  );
  dialog.scrollTop = 0;
}

function part(title, ...children) {
  return make("section", {}, make("h3", {}, title), ...children);
}

function numbersOf(known, cell) {
  if (cell.word) {
    return part("No number", make("p", { class: "reason" }, make("b", {}, spaced(cell.status)), ": ", short(cell.reason, 20000)));
  }
  const rows = known.quantities
    .filter(({ name }) => cell.numbers[name])
    .map(({ name, title }) => {
      const numbers = cell.numbers[name];
      const fields = [number(numbers[0]), deviation(numbers) || "–", ends(numbers) || "–"].map((text) => make("td", {}, text));
      return make("tr", {}, make("th", { scope: "row" }, title), ...fields);
    });
  const heads = ["", "median", "±", "95 % interval"].map((text) => (text ? make("th", { scope: "col" }, text) : make("td", {})));
  const table = make("table", {}, make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows));
  const covers = cell.covers_launches ? "" : " It does not cover what launches differ by.";
  const best = cell.best ? make("p", {}, "★ The fastest of its column, or not to be told from it.") : null;
  return part("Numbers", wide("Numbers", table), make("p", {}, `Interval: ${short(cell.method)}.${covers}`), best);
}

function flagsOf(known, cell) {
  if (!cell.flags.length) return null;
  const items = cell.flags.map(([name, sentence]) => {
    const { symbol, legend } = known.flags[name];
    const more = sentence && sentence !== legend ? `: ${short(sentence, 2000)}` : "";
    return make("li", {}, make("b", {}, symbol), ` ${legend}${more}`);
  });
  return part("Warnings", make("ul", { class: "legend" }, ...items));
}

function launchesOf(known, cell) {
  if (!cell.launches.length) return [part("Launches", make("p", {}, "None: it was not launched, or its number is a published one."))];
  const steps = stepsPicture(cell, known.thinned);
  const days = daysPicture(cell);
  const key = "Line: the median; band: its 95 % interval. Filled: launches that count; hollow: warm-up, and launches that do not count; ×: other programs used the CPUs. The number at the end of a line is the launch's.";
  const thinned = known.thinned > 1 ? ` One of ${known.thinned} steps is shown.` : "";
  return [
    steps && part("Every step", make("figure", {}, wide("Every step", steps), make("figcaption", {}, key + thinned))),
    days && part("By time", make("figure", {}, wide("By time", days), make("figcaption", {}, "The median of each launch, by the time it started."))),
    part("Launches", launchTable(cell, known.thinned)),
  ];
}

function againOf(known, cell) {
  if (!cell.again) return null;
  const told = make("output", { class: "told" });
  const copy = button("Copy", () => copyText(cell.again, told), { id: "copy-again" });
  const versions = [...new Set(cell.launches.map(({ software }) => versionOf(known, known.software[software])))];
  return part(
    "Measure it again",
    make("div", { class: "command" }, make("code", { tabindex: "0" }, cell.again), copy, told),
    make("p", { class: "small" }, `It was: ${[...versions, `dlbench ${known.dlbench}`].map((each) => short(each, 500)).join("; ")}.`),
  );
}

function versionOf(known, software) {
  const named = [software.framework, software.version].filter((each) => typeof each === "string" && each).join(" ");
  const build = software.environment ? `environment ${software.environment}` : "";
  return [named, software.interpreter, build].filter((each) => typeof each === "string" && each).join(", ");
}

function setUpOf(known, cell) {
  if (!cell.launches.length) return null;
  const axes = make("dl", { class: "facts" });
  known.axes.forEach(({ name }, place) => {
    if (cell.at[place] !== "" && cell.at[place] !== null) axes.append(make("dt", {}, spaced(name)), make("dd", {}, short(cell.at[place])));
  });
  axes.append(make("dt", {}, "run"), make("dd", {}, short(cell.run)));
  return make("section", {}, make("details", { open: true }, make("summary", {}, "Software and settings in force"), axes, ...softwareOf(known, cell)));
}
