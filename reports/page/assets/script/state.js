// What the reader chose, in the page's address: a copied address shows the same view, and "back" goes back.
// The fragment begins with "?", so that the anchors of sections keep their meaning.

const SWITCHES = ["transposed", "noise", "few", "all"];

function freshState(known) {
  return {
    quantity: known.quantities[0]?.name ?? "",
    reference: "",
    transposed: false,
    sort: "",
    descending: false,
    noise: false,
    few: false,
    all: false,
    hidden: new Map(known.filters.map((filter) => [filter.id, new Set()])),
    cell: "",
  };
}

function toFragment(known, state) {
  const usual = freshState(known);
  const told = new URLSearchParams();
  for (const name of ["quantity", "reference", "sort", "cell"]) {
    if (state[name] !== usual[name]) told.set(name, state[name]);
  }
  if (state.sort && state.descending) told.set("descending", "");
  for (const name of SWITCHES) if (state[name]) told.set(name, "");
  for (const filter of known.filters) {
    const hidden = state.hidden.get(filter.id);
    const shown = filter.values.filter(({ key }) => !hidden.has(key)).map(({ key }) => key);
    const fewer = hidden.size <= shown.length ? ["not", [...hidden]] : ["only", shown];
    for (const key of fewer[1]) told.append(`${fewer[0]}.${filter.id}`, key);
    if (!shown.length) told.set(`none.${filter.id}`, "");
  }
  const text = told.toString();
  return text ? `#?${text}` : "";
}

// An address may be of an older page: what is not known here is passed over.
function fromFragment(known, fragment) {
  const state = freshState(known);
  const told = new URLSearchParams(fragment.slice(2));
  if (known.quantities.some(({ name }) => name === told.get("quantity"))) state.quantity = told.get("quantity");
  if (referenceOf(known, told.get("reference"))) state.reference = told.get("reference");
  if (known.byKey.has(told.get("cell"))) state.cell = told.get("cell");
  state.sort = told.get("sort") ?? "";
  state.descending = told.has("descending");
  for (const name of SWITCHES) state[name] = told.has(name);
  for (const filter of known.filters) {
    const only = told.getAll(`only.${filter.id}`);
    const not = told.getAll(`not.${filter.id}`);
    for (const { key } of filter.values) {
      const out = told.has(`none.${filter.id}`) || not.includes(key) || (only.length && !only.includes(key));
      if (out) state.hidden.get(filter.id).add(key);
    }
  }
  return state;
}

// What numbers are compared with: a row of the same group and column, or the same cell on a machine.
function referenceOf(known, text) {
  const [kind, key] = [text?.slice(0, text.indexOf(":")), text?.slice(text.indexOf(":") + 1)];
  if (kind === "row" && known.rows.has(key)) return { row: known.rows.get(key) };
  const machine = known.machines.findIndex(({ fingerprint }) => fingerprint === key);
  return kind === "machine" && machine >= 0 ? { machine } : null;
}

const isView = (fragment) => fragment.startsWith("#?");
