// The page comes alive: the static matrix gives way to one that can be filtered, compared, sorted and opened.

async function start() {
  const raw = await block("data");
  const known = indexed(structuredClone(raw));
  if (!known.cells.length) return;
  const controls = find("matrix-controls");
  const live = find("matrix-live");
  let state = fromFragment(known, isView(location.hash) ? location.hash : "");
  let found = arranged(known, state);

  const change = (by) => {
    by(state);
    remember();
    show();
  };
  const remember = () => history.pushState(null, "", toFragment(known, state) || location.pathname + location.search);
  const show = () => {
    found = arranged(known, state);
    showState(known, state);
    showMatrix(known, state, found, () => change((now) => Object.assign(now, { all: true })));
  };

  controls.append(...controlsOf(known, change), copyingOf(() => gridOf(known, state, found)));
  offerDownloads(known, raw);
  show();
  find("matrix-static").hidden = true;
  controls.hidden = live.hidden = false;

  const openCell = (key) => {
    state.cell = key;
    remember();
    showCell(known, state);
  };
  live.addEventListener("click", (event) => {
    const pressed = event.target.closest("button");
    if (pressed?.dataset.cell) openCell(pressed.dataset.cell);
    if (pressed?.dataset.sort) change((now) => sortBy(now, pressed.dataset.sort));
  });
  live.addEventListener("keydown", walk);
  find("cell").addEventListener("close", () => {
    const key = state.cell;
    if (!key) return;
    state.cell = "";
    remember();
    focusOn("cell", key);
  });
  // Another fragment: a view, or nothing at all (the first one); an anchor of a section changes no view.
  addEventListener("popstate", () => {
    if (location.hash && !isView(location.hash)) return;
    state = fromFragment(known, location.hash);
    show();
    showCell(known, state);
  });
  aroundPrinting(() => !state.all && showMatrix(known, { ...state, all: true }, found), show);
  showCell(known, state);
}

function showMatrix(known, state, found, showAll) {
  const { sort, cell } = document.activeElement?.dataset ?? {};
  const { table, drawn, all } = matrixOf(known, state, found);
  const shown = drawn.length;
  const more = shown < all && button(`Show all ${all.toLocaleString("en")} rows`, showAll, { id: "show-all" });
  const rest = more && make("p", {}, `The first ${shown.toLocaleString("en")} rows are shown. `, more);
  const nothing = found.count ? null : make("p", {}, "No cell passes the filters.");
  const box = wide("Table of cells", table);
  const before = find("matrix-live").querySelector(".wide");
  const [left, top] = before ? [before.scrollLeft, before.scrollTop] : [0, 0];
  find("matrix-live").replaceChildren(...[box, nothing, rest || null, ...legendOf(known, drawn)].filter(Boolean));
  find("cells-told").textContent = countOf(known, found);
  if (left || top) box.scrollTo(left, top);
  if (sort) focusOn("sort", sort);
  else if (cell) focusOn("cell", cell);
}

function sortBy(state, key) {
  if (state.sort !== key) return Object.assign(state, { sort: key, descending: false });
  return state.descending ? Object.assign(state, { sort: "", descending: false }) : Object.assign(state, { descending: true });
}

function focusOn(name, value) {
  find("matrix-live").querySelector(`button[data-${name}="${CSS.escape(value)}"]`)?.focus();
}

function showCell(known, state) {
  const dialog = find("cell");
  if (!state.cell) {
    dialog.close();
    return;
  }
  fillCell(known, known.byKey.get(state.cell));
  if (!dialog.open) dialog.showModal();
}

// Arrows go from cell to cell; Tab goes through all of them too.
function walk(event) {
  const [down, across] = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] ?? [0, 0];
  const field = event.target.closest("td");
  if (!field || (!down && !across)) return;
  const rows = [...event.currentTarget.querySelectorAll("tbody tr:not(.group)")];
  let [row, column] = [rows.indexOf(field.parentElement) + down, field.cellIndex + across];
  while (rows[row]?.cells[column]) {
    const open = rows[row].cells[column].querySelector("button");
    if (open) {
      open.focus();
      event.preventDefault();
      return;
    }
    [row, column] = [row + down, column + across];
  }
}

// On paper nothing can be opened: everything is, and the whole matrix stands there.
function aroundPrinting(before, after) {
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    for (const each of opened) each.open = true;
    before();
  });
  addEventListener("afterprint", () => {
    for (const each of opened) each.open = false;
    after();
  });
}

start().catch((error) => {
  find("matrix-controls").hidden = false;
  find("matrix-controls").replaceChildren(make("p", {}, `${error.message}. The tables and plots of this page stay as they are.`));
  find("matrix-static").hidden = false;
  find("matrix-live").hidden = true;
});
