// View, filters and order of the matrix, and the open cell, kept in the page's address. Python computed every number.
(() => {
"use strict";
const find = (id) => document.getElementById(id);
const every = (selector, within = document) => [...within.querySelectorAll(selector)];

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

async function start() {
  const page = await block("view");
  const table = find("matrix-table");
  const [choice, dialog, means] = [find("choose-view"), find("cell"), find("means")];
  const rows = every("tbody tr:not(.group)", table);
  const order = new Map(rows.map((row, place) => [row, place]));
  const fields = every("td[data-cell]", table).map((field) => ({ field, number: Number(field.dataset.cell) }));
  const heads = every("th[aria-sort]", table);
  const machines = every("th[scope=colgroup]", table).map((head) => [head, head.colSpan]);
  const boxes = every("input[data-filter]");
  const links = every("td a", table);
  const direction = (head) => head.getAttribute("aria-sort");
  let opened = "";
  let drawn = 0; // the first view's texts are in the table from the start

  // The controls hold the state: they are written to the address, and set from it.
  function address() {
    const said = new URLSearchParams();
    if (choice.selectedIndex > 0) said.set("view", choice.selectedOptions[0].text);
    for (const box of boxes) if (!box.checked) said.append(`not.${box.name}`, box.parentElement.textContent);
    const head = heads.find((each) => direction(each) !== "none");
    if (head) said.set(direction(head), head.textContent);
    if (opened) said.set("cell", opened);
    return said.size ? `#?${said}` : location.pathname + location.search;
  }

  // An address may be of another page: what is not known here is ignored.
  function restore() {
    const said = new URLSearchParams(location.hash.startsWith("#?") ? location.hash.slice(2) : "");
    choice.selectedIndex = Math.max(0, [...choice.options].findIndex(({ text }) => text === said.get("view")));
    for (const box of boxes) box.checked = !said.getAll(`not.${box.name}`).includes(box.parentElement.textContent);
    for (const head of heads) {
      const sorted = ["ascending", "descending"].find((each) => said.get(each) === head.textContent);
      head.setAttribute("aria-sort", sorted ?? "none");
    }
    opened = page.keys.includes(said.get("cell")) ? said.get("cell") : "";
    show();
    showCell();
  }

  function changed() {
    history.pushState(null, "", address());
    show();
  }

  function show() {
    const view = Number(choice.value) || 0;
    if (view !== drawn) write(page.views[view]);
    drawn = view;
    const hidden = (page.filters[0] ?? []).map(() => new Set());
    for (const box of boxes) if (!box.checked) hidden[box.dataset.filter].add(Number(box.value));
    const narrowed = hidden.some(({ size }) => size);
    let count = 0;
    const used = new Set();
    for (const { field, number } of fields) {
      const out = Boolean(page.filters[number]?.some((value, place) => hidden[place].has(value)));
      field.classList.toggle("out", out);
      if (!out && number < page.keys.length) used.add(field.cellIndex) && (count += 1);
    }
    // Means are those of all groups: they stand beside all groups only.
    if (means) means.hidden = narrowed || !fields.some(({ field, number }) => number >= page.keys.length && field.textContent);
    for (const body of table.tBodies) {
      const shown = [...body.rows].slice(1).filter((row) => !(row.hidden = !row.querySelector("td[data-cell]:not(.out)")));
      if (body !== means) body.hidden = !shown.length;
    }
    for (const row of [...table.tHead.rows].slice(-1).concat(rows)) {
      for (const field of [...row.cells].slice(1)) field.hidden = narrowed && !used.has(field.cellIndex);
    }
    let first = 1;
    for (const [head, span] of machines) {
      head.colSpan = Math.max(1, heads.slice(first - 1, first - 1 + span).filter((each) => !each.hidden).length);
      head.hidden = heads.slice(first - 1, first - 1 + span).every((each) => each.hidden);
      first += span;
    }
    sort();
    find("none-shown").hidden = count > 0;
    find("cells-shown").textContent = count < page.keys.length ? `${count} of ${page.keys.length} cells` : `${count} cells`;
    const filters = every("#filters fieldset").filter((each) => each.querySelector("input:not(:checked)"));
    if (find("filters-set")) find("filters-set").textContent = filters.map((each) => ` · ${each.querySelector("legend").firstChild.textContent.trim()} ${each.querySelectorAll("input:checked").length} of ${each.querySelectorAll("input").length}`).join("");
    rove(links.find((link) => link.tabIndex === 0));
  }

  function write(view) {
    table.caption.textContent = view.caption;
    for (const { field, number } of fields) {
      if (field.classList.contains("hole")) continue;
      const [text, spread, tip] = view.fields[number] || ["", "", ""];
      const place = field.querySelector(".spread");
      place.previousElementSibling.textContent = text;
      place.textContent = spread;
      field.title = tip;
      field.classList.toggle("noise", text.startsWith("≈"));
    }
  }

  function sort() {
    const head = heads.find((each) => direction(each) !== "none");
    const value = (row) => Number.parseFloat(row.cells[head.cellIndex].querySelector(".spread")?.previousElementSibling.textContent.replace("≈ ", ""));
    for (const body of table.tBodies) {
      const inside = [...body.rows].slice(1).sort((a, b) => order.get(a) - order.get(b));
      if (head) {
        const sign = direction(head) === "descending" ? -1 : 1;
        const least = (row) => (Number.isNaN(value(row)) ? Infinity : sign * value(row));
        inside.sort((a, b) => (least(a) === least(b) ? 0 : least(a) - least(b)));
      }
      if (inside.some((row, place) => row !== body.rows[place + 1])) body.append(...inside);
    }
  }

  // One cell of the matrix is reached by Tab, the others from it by arrows.
  function rove(link) {
    const next = link?.checkVisibility() ? link : links.find((each) => each.checkVisibility());
    for (const each of links) each.tabIndex = each === next ? 0 : -1;
  }

  function walk(event) {
    const [down, across] = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] ?? [0, 0];
    const field = event.target.closest("td");
    if (!field || (!down && !across)) return;
    const visible = every("tbody tr:not(.group)", table).filter((row) => row.checkVisibility());
    let [row, column] = [visible.indexOf(field.parentElement) + down, field.cellIndex + across];
    for (; visible[row]?.cells[column]; row += down, column += across) {
      const link = visible[row].cells[column].querySelector("a");
      if (!link?.checkVisibility()) continue;
      link.focus();
      event.preventDefault();
      return;
    }
  }

  function showCell() {
    if (!opened) return dialog.close();
    dialog.innerHTML = page.cells[page.keys.indexOf(opened)];
    for (const place of every("[data-software]", dialog)) place.innerHTML = page.software[place.dataset.software];
    if (!dialog.open) dialog.showModal();
    dialog.scrollTop = 0;
  }

  async function copy(button) {
    const [code, said] = [button.previousElementSibling, button.nextElementSibling];
    try {
      await navigator.clipboard.writeText(code.textContent);
      said.textContent = "Copied.";
    } catch {
      getSelection().selectAllChildren(code); // A page opened as a file may not write into the clipboard.
      said.textContent = "Selected: press Ctrl+C (or ⌘C).";
    }
  }

  async function save(name) {
    const blocks = { "data.json": "data", "provenance.json": "provenance-data" };
    const text = blocks[name] ? JSON.stringify(await block(blocks[name])) : page.files[name];
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  find("matrix-controls").addEventListener("change", changed);
  document.addEventListener("click", (event) => {
    const pressed = event.target.closest("button, td a");
    if (pressed?.tagName === "A") {
      event.preventDefault();
      opened = page.keys[pressed.parentElement.dataset.cell];
      history.pushState({ opened: true }, "", address());
      showCell();
    } else if (pressed?.matches(".sort")) {
      const head = pressed.parentElement;
      const next = { none: "ascending", ascending: "descending", descending: "none" }[direction(head)];
      for (const each of heads) each.setAttribute("aria-sort", each === head ? next : "none");
      changed();
    } else if (pressed?.matches(".all, .none")) {
      for (const box of every("input", pressed.closest("fieldset"))) box.checked = pressed.matches(".all");
      changed();
    } else if (pressed?.id === "reset") {
      history.pushState(null, "", location.pathname + location.search);
      restore();
    } else if (pressed?.id === "cell-close") dialog.close();
    else if (pressed?.matches(".copy")) copy(pressed);
    else if (pressed?.dataset.file) save(pressed.dataset.file);
  });
  table.addEventListener("keydown", walk);
  table.addEventListener("focusin", ({ target }) => target.matches("td a") && rove(target));
  dialog.addEventListener("close", () => {
    const link = links.find((each) => page.keys[each.parentElement.dataset.cell] === opened);
    if (!opened) return;
    opened = "";
    // Back must not open it again.
    if (history.state?.opened) history.back();
    else history.replaceState(null, "", address());
    link?.focus();
  });
  addEventListener("popstate", () => (!location.hash || location.hash.startsWith("#?")) && restore());
  restore();
  find("matrix-controls").hidden = find("downloads").hidden = false;
  if (location.hash.startsWith("#?")) find("matrix").scrollIntoView();
}

// On paper nothing can be opened: everything is.
let closed = [];
addEventListener("beforeprint", () => (closed = every("details:not([open])")).forEach((each) => (each.open = true)));
addEventListener("afterprint", () => closed.forEach((each) => (each.open = false)));

if (find("matrix-table")) {
  start().catch((error) => {
    const said = document.createElement("p");
    said.textContent = `${error.message}. The tables and plots of this page stay as they are.`;
    find("matrix-controls").hidden = false;
    find("matrix-controls").replaceChildren(said);
  });
}
})();
