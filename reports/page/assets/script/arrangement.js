// The matrix as it is to be shown, before it is a table: which cells, where, in which order, and what stands in each.

function arranged(known, state) {
  const reference = referenceOf(known, state.reference);
  const filters = known.filters.filter(({ id }) => state.hidden.get(id).size);
  const visible = known.cells.filter((cell) => filters.every(({ id, of }) => !state.hidden.get(id).has(of(cell))));
  const groups = new Map();
  const used = new Set();
  for (const cell of visible) {
    const [down, across] = state.transposed ? [String(cell.column), cell.rowKey] : [cell.rowKey, String(cell.column)];
    if (!groups.has(cell.groupKey)) groups.set(cell.groupKey, new Map());
    const lines = groups.get(cell.groupKey);
    if (!lines.has(down)) lines.set(down, new Map());
    lines.get(down).set(across, fieldAt(known, state, reference, cell));
    used.add(across);
  }
  const columns = headsOf(known, !state.transposed).filter(({ key }) => used.has(key));
  const heads = new Map(headsOf(known, state.transposed).map((head) => [head.key, head]));
  const blocks = [...groups].map(([key, lines]) => {
    const rows = [...lines].map(([line, fields]) => ({ head: heads.get(line), fields }));
    if (state.transposed) rows.sort((a, b) => a.head.key - b.head.key);
    return { name: known.groups.get(key).name, rows: sorted(rows, state) };
  });
  const means = reference && meanBlock(known, state, reference, groups, heads);
  if (means) blocks.unshift(means);
  return { columns, blocks, count: visible.length, reference };
}

// A cell and what stands in it, which is found out when it is drawn: of thousands of cells few are.
function fieldAt(known, state, reference, cell) {
  let shown = null;
  return {
    cell,
    get shown() {
      shown ??= shownOf(known, state, reference, cell);
      return shown;
    },
  };
}

// Places (a machine and what it gives), or ways to do the work. The cells are in the order of the matrix; within a group
// their order is that of its rows.
function headsOf(known, places) {
  if (!places) return known.rowsInOrder.map(({ key, name }) => ({ key, name, machine: null }));
  return known.columns.map(({ machine, place }, key) => ({ key: String(key), name: short(place), machine }));
}

function sorted(rows, state) {
  if (!state.sort) return rows;
  const sign = state.descending ? -1 : 1;
  const value = (row) => row.fields.get(state.sort)?.shown.numbers?.[0] ?? null;
  return [...rows].sort((a, b) => {
    const [one, other] = [value(a), value(b)];
    if (one === null || other === null) return (one === null) - (other === null);
    return sign * (one - other);
  });
}

// What stands in a cell: its text with interval, the numbers behind it (or none), and the words that explain it.
function shownOf(known, state, reference, cell) {
  if (cell.word) return { text: cell.word, kind: "hole", title: cell.reason };
  const numbers = cell.numbers[state.quantity];
  if (!numbers) return { text: "–", kind: "nothing", title: "this quantity is not known of it" };
  if (state.few && !cell.covers_launches) {
    return { text: "·", kind: "nothing", title: `left out: ${counted(cell.of_launches, "launch")} only` };
  }
  if (!reference) return withNumbers(known, cell, numbers, number(numbers[0]));
  const times = timesOf(known, state, reference, cell);
  if (!times) return { text: "–", kind: "nothing", title: "nothing to compare with: the reference has no number here" };
  if (counterpart(known, reference, cell) === cell) return { ...withNumbers(known, cell, times, "1"), spread: "", kind: "reference" };
  if (state.noise && mayBeNoise(times, known.least_ratio)) {
    return { text: "≈", kind: "nothing", title: `noise may explain it: ${number(times[0])}× (${ends(times) || "no interval"})` };
  }
  return withNumbers(known, cell, times, `${number(times[0])}×`);
}

// A cell as a multiple of the reference's; nothing where one of the two has no number.
function timesOf(known, state, reference, cell) {
  const other = counterpart(known, reference, cell);
  const [mine, theirs] = [cell, other].map((each) => each && !each.word && each.numbers[state.quantity]);
  if (!mine || !theirs) return null;
  if (other === cell) return [1, 1, 1];
  return ratio(mine, theirs, cell.covers_launches && other.covers_launches, known.launch_deviation);
}

function counterpart(known, reference, cell) {
  if (!reference.row) return known.byKey.get(cellKey(known, reference.machine, cell.at));
  const at = cell.at.map((value, place) => (known.rowAxes.includes(place) ? reference.row.at[place] : value));
  return known.byKey.get(cellKey(known, cell.machine, at));
}

function withNumbers(known, cell, numbers, text) {
  const told = [ends(numbers) || "no interval", counted(cell.of_launches, "launch")];
  if (cell.best) told.push("the fastest of its column, or not to be told from it");
  return {
    text,
    numbers,
    kind: cell.best ? "best" : "number",
    spread: deviation(numbers),
    marks: cell.flags.map(([name]) => known.flags[name].symbol).join(""),
    title: [...told, ...cell.flags.map(([name, sentence]) => sentence || known.flags[name].legend)].join("; "),
  };
}

function heading(known, state) {
  const quantity = known.quantities.find(({ name }) => name === state.quantity);
  const title = quantity?.title ?? "Cells";
  const reference = referenceOf(known, state.reference);
  if (!reference) return title;
  const what = reference.row ? `${reference.row.name}, in the same group and column` : known.machines[reference.machine].name;
  const sense = quantity?.less_is_better ? "below 1× is better" : "above 1× is better";
  return `${title}, as a multiple of ${short(what)} (${sense})`;
}
