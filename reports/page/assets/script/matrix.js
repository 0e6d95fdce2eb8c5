// The matrix as a table, and the words beneath it.

const MOST_FIELDS = 600; // so many cells are drawn in a blink; a button draws the others
const EMPTY = 0.2; // what an empty field costs beside a cell
const MOST_REASONS = 200;

function matrixOf(known, state, found) {
  const table = make("table", { class: "matrix" });
  table.append(make("caption", {}, captionOf(known, state, found)), headOf(known, state, found));
  const all = found.blocks.reduce((sum, block) => sum + block.rows.length, 0);
  let left = state.all ? Infinity : MOST_FIELDS;
  const fits = ({ fields }) => left > 0 && ((left -= fields.size + EMPTY * found.columns.length), true);
  const drawn = [];
  for (const block of found.blocks) {
    const rows = block.rows.filter(fits);
    if (rows.length) table.append(bodyOf(known, state, found, block, rows));
    drawn.push(...rows);
  }
  return { table, drawn, all };
}

function captionOf(known, state, found) {
  const only = known.machines.length === 1 ? ` on ${known.machines[0].name}` : "";
  return `${heading(known, state)}${only}: ${countOf(known, found)}`;
}

function countOf(known, found) {
  const all = known.cells.length;
  return found.count === all ? counted(all, "cell") : `${found.count.toLocaleString("en")} of ${counted(all, "cell")}`;
}

function headOf(known, state, found) {
  const head = make("thead", {});
  const several = !state.transposed && known.machines.length > 1;
  if (several) {
    const row = make("tr", {}, make("td", {}));
    for (const [machine, count] of neighbours(found.columns)) {
      row.append(make("th", { scope: "colgroup", colspan: count }, make("span", {}, known.machines[machine].name)));
    }
    head.append(row);
  }
  const row = make("tr", {}, make("th", { scope: "col" }, state.transposed ? "place" : "framework"));
  for (const { key, name } of found.columns) {
    const direction = state.sort !== key ? "none" : state.descending ? "descending" : "ascending";
    const mark = { none: "", ascending: " ▲", descending: " ▼" }[direction];
    const attributes = { "data-sort": key, class: "sort", title: "Sort the rows of each group by this column" };
    row.append(make("th", { scope: "col", "aria-sort": direction }, make("button", { type: "button", ...attributes }, name + mark)));
  }
  head.append(row);
  return head;
}

function neighbours(columns) {
  const found = [];
  for (const { machine } of columns) {
    if (found.length && found.at(-1)[0] === machine) found.at(-1)[1] += 1;
    else found.push([machine, 1]);
  }
  return found;
}

function bodyOf(known, state, found, block, rows) {
  const body = make("tbody", {});
  const name = make("th", { scope: "rowgroup", colspan: found.columns.length + 1 }, make("span", {}, block.name));
  body.append(make("tr", { class: "group" }, name));
  for (const { head, fields } of rows) {
    const row = make("tr", {}, make("th", { scope: "row" }, make("span", { class: "name" }, ...breakable(lineName(known, head)))));
    for (const { key } of found.columns) {
      row.append(fieldOf(fields.get(key)));
    }
    body.append(row);
  }
  return body;
}

function lineName(known, head) {
  const several = head.machine !== null && known.machines.length > 1;
  return several ? `${known.machines[head.machine].name}: ${head.name}` : head.name;
}

function fieldOf(field) {
  if (!field) return make("td", { class: "missing" }, "–");
  const { cell, shown } = field;
  if (!cell.key) return make("td", { class: shown.kind, title: shown.title }, shown.text, make("span", { class: "spread" }, shown.spread ?? ""));
  const open = make("button", { type: "button", class: "open", "data-cell": cell.key, title: short(shown.title, 1000) });
  if (shown.kind === "best") open.append(make("span", { class: "star" }, "★"), " ");
  open.append(shown.text);
  if (shown.spread) open.append(make("span", { class: "spread" }, shown.spread));
  if (shown.marks) open.append(make("span", { class: "marks" }, shown.marks));
  return make("td", { class: shown.kind }, open);
}

// What the signs in the rows that are shown mean.
function legendOf(known, rows) {
  const fields = rows.flatMap((row) => [...row.fields.values()]);
  const lines = [];
  const has = (kind) => fields.some(({ shown }) => shown.kind === kind);
  if (has("best")) lines.push(["★", "the fastest of its column, and what noise cannot tell from it"]);
  if (fields.some(({ shown }) => shown.spread)) lines.push(["±", "half the width of the 95 % interval (its wider side); a cell's tip has both ends"]);
  const raised = new Set(fields.flatMap(({ shown, cell }) => (shown.marks ? cell.flags.map(([name]) => name) : [])));
  for (const [name, { symbol, legend }] of Object.entries(known.flags)) {
    if (raised.has(name)) lines.push([symbol, legend]);
  }
  if (fields.some(({ shown }) => shown.fewer)) lines.push(["(n)", "a mean over n of the groups only: those in which both have a number"]);
  const signs = {
    "≈": "a difference that noise may explain: the ratio's interval includes 1, or it is under 2 %",
    "·": "left out: too few launches",
    "–": "not measured, or without this quantity",
  };
  for (const [sign, words] of Object.entries(signs)) {
    if (fields.some(({ shown }) => shown.text === sign)) lines.push([sign, words]);
  }
  const items = lines.map(([sign, words]) => make("li", {}, make("b", {}, sign), ` ${words}`));
  return [make("ul", { class: "legend", "aria-label": "Signs" }, ...items), holesOf(fields)].filter(Boolean);
}

function holesOf(fields) {
  const reasons = new Map();
  for (const { cell } of fields) {
    if (!cell.word) continue;
    const where = `${cell.row}, ${cell.group}`;
    reasons.set(cell.reason, (reasons.get(cell.reason) ?? new Set()).add(where));
  }
  if (!reasons.size) return null;
  const count = fields.filter(({ cell }) => cell.word).length;
  const items = [...reasons].slice(0, MOST_REASONS).map(([reason, where]) => {
    const named = [...where].slice(0, 5).map((each) => short(each)).join("; ");
    const more = where.size > 5 ? ` and ${where.size - 5} more` : "";
    return make("li", {}, make("b", {}, short(reason, 1000)), ` ${named}${more}`);
  });
  const left = reasons.size - items.length;
  if (left > 0) items.push(make("li", {}, `and ${left} further reasons; every cell tells its own`));
  return make("details", { class: "holes" }, make("summary", {}, `Why ${counted(count, "cell")} ${count === 1 ? "has" : "have"} no number`), make("ul", {}, ...items));
}
