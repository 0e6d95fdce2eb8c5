// What the reader can choose. Every filter comes from the table of axes: a new axis appears by itself.

function controlsOf(known, change) {
  const choose = (name) => (event) => change((state) => Object.assign(state, { [name]: event.target.value }));
  const quantity = make("select", { id: "choose-quantity", change: choose("quantity") });
  quantity.append(...known.quantities.map(({ name, title }) => make("option", { value: name }, title)));
  const reference = make("select", { id: "choose-reference", change: choose("reference") }, make("option", { value: "" }, "nothing (plain numbers)"));
  reference.append(...referencesOf(known));
  const switches = {
    transposed: ["Swap rows and columns", "Frameworks across, places down"],
    noise: ["Hide what noise may explain", "For comparisons: a ratio whose interval includes 1, or that is within 2 % of it, shows as ≈"],
    few: ["Hide cells of fewer than 3 launches", "Their interval does not cover what launches differ by"],
  };
  const boxes = Object.entries(switches).map(([name, [text, title]]) => {
    const toggle = (event) => change((state) => Object.assign(state, { [name]: event.target.checked }, name === "transposed" && { sort: "" }));
    return make("label", { class: "check", title }, make("input", { type: "checkbox", id: `switch-${name}`, change: toggle }), text);
  });
  const reset = button("Reset", () => change((state) => Object.assign(state, freshState(known))), { id: "reset", title: "Show everything again" });
  return [
    make("div", { class: "row" }, labelled("Show", quantity), labelled("Compared with", reference), ...boxes, reset, make("output", { id: "cells-told", class: "told" })),
    filtersOf(known, change),
  ].filter(Boolean);
}

const labelled = (text, control) => make("label", { class: "choice" }, make("span", {}, text), control);

function referencesOf(known) {
  const option = (kind) => ([key, title]) => make("option", { value: `${kind}:${key}` }, title);
  const rows = known.rowsInOrder.map(({ key, name }) => [key, name]);
  const machines = known.machines.map(({ fingerprint, name }) => [fingerprint, name]);
  const found = [make("optgroup", { label: "a row, in the same group and column" }, ...rows.map(option("row")))];
  if (machines.length > 1) found.push(make("optgroup", { label: "the same cell on" }, ...machines.map(option("machine"))));
  return found;
}

function filtersOf(known, change) {
  if (!known.filters.length) return null;
  const fields = known.filters.map((filter) => {
    const all = (hidden) => () => change((state) => state.hidden.set(filter.id, new Set(hidden)));
    const values = filter.values.map(({ key, title }) => {
      const toggle = (event) => change((state) => state.hidden.get(filter.id)[event.target.checked ? "delete" : "add"](key));
      const box = make("input", { type: "checkbox", checked: true, "data-filter": filter.id, value: key, change: toggle });
      return make("label", { class: "check" }, box, title);
    });
    const both = make(
      "span",
      { class: "both" },
      button("All", all([]), { "aria-label": `Show every ${filter.title}` }),
      button("None", all(filter.values.map(({ key }) => key)), { "aria-label": `Hide every ${filter.title}` }),
    );
    return make("fieldset", {}, make("legend", {}, filter.title, both), make("div", { class: "values" }, ...values));
  });
  return make("details", { id: "filters" }, make("summary", {}, "Filters", make("span", { id: "filters-told" })), make("div", { class: "fields" }, ...fields));
}

// The controls say what the state says, wherever it came from: a click, the address, or "back".
function showState(known, state) {
  find("choose-quantity").value = state.quantity;
  find("choose-reference").value = state.reference;
  for (const name of ["transposed", "noise", "few"]) find(`switch-${name}`).checked = state[name];
  find("switch-noise").disabled = !state.reference;
  for (const box of document.querySelectorAll("input[data-filter]")) {
    box.checked = !state.hidden.get(box.dataset.filter).has(box.value);
  }
  const narrowed = known.filters.filter((filter) => state.hidden.get(filter.id).size);
  const told = narrowed.map((filter) => `${filter.title} ${filter.values.length - state.hidden.get(filter.id).size} of ${filter.values.length}`);
  if (known.filters.length) find("filters-told").textContent = told.length ? `: ${told.join(", ")}` : "";
}
