// The table of a cell's launches. Evidence that a launch lacks is a dash.

const parityWords = (launch) => launch.parity?.verdict ?? "–";
const tiny = (value) => value.toExponential(1);
const within = (error, tolerance) => `${maybe(error, tiny)} / ${maybe(tolerance, tiny)}`;

const FACTS = [
  ["Launch", [
    ["started (UTC)", (launch) => launch.started.replace("T", " ").slice(0, 19)],
    ["attempt", (launch) => launch.attempt + 1],
    ["counts", (launch) => (launch.counts ? "yes" : "no")],
    ["disturbed", (launch) => (launch.disturbed ? "yes" : "no")],
    ["ended", (launch) => (launch.reason ? `${spaced(launch.status)}: ${short(launch.reason, 2000)}` : spaced(launch.status))],
  ]],
  ["Steps", [
    ["median", (launch) => (launch.samples_ns.length ? inSeconds(median(secondsOf(launch))) : "–")],
    ["timed", (launch, thinned) => launch.samples_ns.length * launch.steps_per_sample * thinned],
    ["warm-up", (launch) => launch.warmup_ns.length],
    ["first step", (launch) => maybe(launch.first_step_seconds, inSeconds)],
    ["final loss", (launch) => maybe(launch.final_loss)],
  ]],
  ["Parity", [
    ["verdict", parityWords],
    ["loss error / allowed", ({ parity }) => within(parity?.loss_error, parity?.loss_tolerance)],
    ["update error / allowed", ({ parity }) => within(parity?.update_error, parity?.update_tolerance)],
  ]],
  ["Threads", [
    ["asked", ({ threads }) => threads?.requested ?? "–"],
    ["framework says", ({ threads }) => threads?.framework_says ?? "–"],
    ["system saw", ({ threads }) => threads?.os_threads ?? "–"],
    ["CPU s per wall s", ({ threads }) => (threads?.wall_seconds ? number(threads.cpu_seconds / threads.wall_seconds) : "–")],
  ]],
  ["Others on this machine", [
    ["waited for a CPU", ({ contention }) => maybe(contention?.run_queue_seconds, inSeconds)],
    ["involuntary switches", ({ contention }) => contention?.involuntary_switches ?? "–"],
    ["stolen by the hypervisor", ({ contention }) => maybe(contention?.steal_seconds, inSeconds)],
    ["CPU time of others", ({ contention }) => maybe(contention?.others_cpu_seconds, inSeconds)],
  ]],
  ["Memory", [["peak", (launch) => maybe(launch.peak_memory_bytes, inBytes)]]],
];

const WORDS = FACTS[0][1].length - 1; // why it ended may be long

function launchTable(cell, thinned) {
  const over = make("tr", {}, make("td", {}), ...FACTS.map(([title, facts]) => make("th", { scope: "colgroup", colspan: facts.length }, title)));
  const facts = FACTS.flatMap(([, each]) => each);
  const heads = make("tr", {}, make("th", { scope: "col" }, "no."), ...facts.map(([title]) => make("th", { scope: "col" }, title)));
  const rows = cell.launches.map((launch) => {
    const kind = launch.counts ? "" : "apart";
    const fields = facts.map(([, of]) => make("td", {}, String(of(launch, thinned))));
    if (launch.reason) fields[WORDS].classList.add("words");
    return make("tr", { class: kind }, make("th", { scope: "row" }, launch.launch + 1), ...fields);
  });
  const table = make("table", {}, make("thead", {}, over, heads), make("tbody", {}, ...rows));
  return wide("Launches", table);
}

// Everything that a framework said of itself, one list for each build or setting that launches differ in.
function softwareOf(known, cell) {
  const launches = new Map();
  for (const launch of cell.launches) launches.set(launch.software, [...(launches.get(launch.software) ?? []), launch.launch + 1]);
  return [...launches].map(([place, names]) => {
    const several = launches.size > 1 ? make("h4", {}, `Launch ${[...new Set(names)].join(", ")}`) : null;
    const { distributions, ...facts } = known.software[place];
    const list = make("dl", { class: "facts" });
    for (const [name, value] of Object.entries(facts)) {
      if (!isEmpty(value)) list.append(make("dt", {}, spaced(short(name))), make("dd", {}, valueOf(value)));
    }
    const packages = isEmpty(distributions) ? null : make("details", {}, make("summary", {}, counted(Object.keys(distributions).length, "installed package")), valueOf(distributions));
    return make("div", {}, several, list, packages);
  });
}

const isEmpty = (value) => value === null || value === undefined || value === "" || (typeof value === "object" && !Object.keys(value).length);

function valueOf(value) {
  if (Array.isArray(value)) return value.every((each) => typeof each !== "object" || each === null) ? value.map((each) => short(each, 2000)).join(", ") : JSON.stringify(value);
  if (typeof value !== "object" || value === null) return short(value, 2000);
  const items = Object.entries(value).map(([name, each]) => make("li", {}, `${short(name)} = `, isEmpty(each) ? '""' : valueOf(each)));
  return make("ul", { class: "plain" }, ...items);
}
