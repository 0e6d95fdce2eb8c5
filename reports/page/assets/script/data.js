// The data inside the page, and what is found in it: groups, rows, columns, and which axes differ.

async function block(id) {
  const element = find(id);
  if (!element.dataset.encoding) return JSON.parse(element.textContent);
  if (typeof DecompressionStream === "undefined") {
    throw new Error("This browser cannot unpack the data (it has no DecompressionStream)");
  }
  const packed = Uint8Array.from(atob(element.textContent), (character) => character.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

const keyOf = (values) => JSON.stringify(values);

// Adds to the page's data what walks over it need; every axis is taken from its table.
function indexed(data) {
  const places = (role) => data.axes.flatMap((axis, place) => (axis.role === role ? [place] : []));
  const known = { ...data, groups: new Map(), rows: new Map(), byKey: new Map() };
  known.rowAxes = places("row");
  const groupAxes = places("group");
  for (const cell of data.cells) {
    cell.key = cellKey(known, cell.machine, cell.at);
    cell.groupKey = keyOf(groupAxes.map((place) => cell.at[place]));
    cell.rowKey = keyOf(known.rowAxes.map((place) => cell.at[place]));
    known.byKey.set(cell.key, cell);
    remember(known.groups, cell.groupKey, cell.group, cell.at);
    remember(known.rows, cell.rowKey, cell.row, cell.at);
  }
  tellApart(known.groups, data.axes);
  tellMachinesApart(known.machines);
  known.rowsInOrder = [...known.rows.values()].sort((a, b) => inOrder(known.rowAxes.map((place) => [a.at[place], b.at[place]])));
  known.filters = [machineFilter(data), ...data.axes.map((axis, place) => axisFilter(data, axis, place))];
  known.filters = known.filters.filter((filter) => filter && filter.values.length > 1);
  known.quantities = data.quantities.filter(({ name }) => data.cells.some((cell) => cell.numbers[name]));
  return known;
}

function inOrder(pairs) {
  const [one, other] = pairs.find(([a, b]) => a !== b) ?? [0, 0];
  return one < other ? -1 : Number(one > other);
}

const cellKey = (known, machine, at) => keyOf([known.machines[machine].fingerprint, ...at]);

function remember(names, key, name, at) {
  if (!names.has(key)) names.set(key, { key, name: short(name), at });
}

// Networks of one name and different numbers have groups of one name: the axes that go with others tell them apart.
function tellApart(groups, axes) {
  const names = new Map();
  for (const group of groups.values()) names.set(group.name, [...(names.get(group.name) ?? []), group]);
  for (const alike of names.values()) {
    if (alike.length < 2) continue;
    for (const group of alike) {
      const more = axes.flatMap((axis, place) => (axis.goes_with && group.at[place] ? [group.at[place]] : []));
      if (more.length) group.name = `${group.name} (${more.map((each) => short(each, 12)).join(", ")})`;
    }
  }
}

function tellMachinesApart(machines) {
  const names = machines.map(({ name }) => name);
  for (const machine of machines) {
    const alone = names.indexOf(machine.name) === names.lastIndexOf(machine.name);
    machine.name = short(alone ? machine.name : `${short(machine.name, 150)} [${machine.fingerprint.slice(0, 6)}]`);
  }
}

function machineFilter(data) {
  const values = data.machines.map((machine) => ({ key: machine.fingerprint, title: machine.name }));
  return { id: "machine", title: "machine", values, of: (cell) => data.machines[cell.machine].fingerprint };
}

function axisFilter(data, axis, place) {
  if (axis.goes_with) return null;
  const found = new Map();
  for (const cell of data.cells) {
    const value = cell.at[place];
    if (!found.has(String(value))) found.set(String(value), value);
  }
  const rank = (value) => (axis.order.includes(value) ? axis.order.indexOf(value) : axis.order.length);
  const size = (value) => (typeof value === "number" ? value : 0);
  const values = [...found.values()].sort((a, b) => rank(a) - rank(b) || size(a) - size(b));
  return {
    id: `axis.${axis.name}`,
    title: spaced(axis.name),
    values: values.map((value) => ({ key: String(value), title: value === null || value === "" ? "none" : short(value) })),
    of: (cell) => String(cell.at[place]),
  };
}
