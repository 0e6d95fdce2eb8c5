// Into the clipboard, and into files.

async function copyText(text, told) {
  try {
    await navigator.clipboard.writeText(text);
    told.textContent = "Copied.";
  } catch {
    offerText(text); // A page opened as a file may not write into the clipboard.
  }
}

// The text in a box of its own, selected, to be copied by hand.
function offerText(text) {
  const area = make("textarea", { readonly: true, rows: 12, "aria-label": "Text to copy" });
  area.value = text;
  const dialog = make("dialog", { class: "offered", "aria-label": "Copy this text" });
  dialog.append(make("p", {}, "This browser does not let the page copy. The text is selected: press Ctrl+C (or ⌘C)."), area, button("Close", () => dialog.close()));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  area.select();
}

function save(name, type, text) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  make("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

const SHOWN_AS = {
  markdown: ["Markdown", toMarkdown, "md", "text/markdown"],
  csv: ["CSV", toCsv, "csv", "text/csv"],
  latex: ["LaTeX", toLatex, "tex", "application/x-tex"],
};

// Buttons for the matrix as it is shown at the moment.
function copyingOf(gridNow) {
  const options = Object.entries(SHOWN_AS).map(([name, [title]]) => make("option", { value: name }, title));
  const choice = make("select", { id: "choose-format" }, ...options);
  const told = make("output", { id: "copy-told", class: "told" });
  const write = () => SHOWN_AS[choice.value][1](gridNow());
  const download = () => save(`matrix.${SHOWN_AS[choice.value][2]}`, SHOWN_AS[choice.value][3], write());
  return make(
    "div",
    { class: "row" },
    labelled("This table as", choice),
    button("Copy", () => copyText(write(), told), { id: "copy-matrix" }),
    button("Download", download, { id: "download-matrix" }),
    button("Copy address of this view", () => copyText(location.href, told), { id: "copy-address" }),
    told,
  );
}

function offerDownloads(known, raw) {
  const everything = [
    ["All data (JSON)", "data.json", "application/json", () => JSON.stringify(raw)],
    ["All cells (CSV)", "cells.csv", "text/csv", () => allCells(known)],
    ["Provenance (JSON)", "provenance.json", "application/json", async () => JSON.stringify(await block("provenance-data"), null, 1)],
  ];
  const buttons = everything.map(([title, name, type, text]) => button(title, async () => save(name, type, await text())));
  find("downloads").append("Download: ", ...buttons);
  find("downloads").hidden = false;
}
