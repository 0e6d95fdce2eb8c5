// The matrix as it is shown, in the formats that other programs read. Texts command nothing in any of them.

// Rows of fields, the first the heads; a row of one field is a group's heading.
function gridOf(known, state, found) {
  const several = known.machines.length > 1 && !state.transposed;
  const name = ({ machine, name: place }) => (several ? `${known.machines[machine].name}: ${place}` : place);
  const head = [state.transposed ? "place" : "framework", ...found.columns.map(name)];
  const blocks = found.blocks.map((block) => ({
    name: block.name,
    rows: block.rows.map(({ head: line, fields }) => ({
      name: lineName(known, line),
      fields: found.columns.map(({ key }) => fields.get(key) ?? null),
    })),
  }));
  return { title: captionOf(known, state, found), head, blocks };
}

function textOf(field) {
  if (!field) return "–";
  const { text, spread = "", marks = "" } = field.shown;
  return text + spread + marks;
}

function toMarkdown(grid) {
  const line = (fields) => `| ${fields.join(" | ")} |`;
  const lines = [line(grid.head.map(inMarkdown)), line([":--", ...grid.head.slice(1).map(() => "--:")])];
  for (const block of grid.blocks) {
    lines.push(line([`**${inMarkdown(block.name)}**`, ...grid.head.slice(1).map(() => "")]));
    for (const { name, fields } of block.rows) {
      const bold = (field) => (field?.shown.kind === "best" ? `**${inMarkdown(textOf(field))}**` : inMarkdown(textOf(field)));
      lines.push(line([inMarkdown(name), ...fields.map(bold)]));
    }
  }
  return `${inMarkdown(grid.title)}\n\n${lines.join("\n")}\n`;
}

function inMarkdown(text) {
  const escaped = text.replace(/[\\`*_{}[\]<>|~^#&$]/g, "\\$&");
  return escaped.replace(/(?<=\bwww)\.|:(?=\/\/)/gi, "\\$&").replace(/^([-=+]|\d+[.)])(?=\s)/, "\\$1");
}

function toLatex(grid) {
  const row = (fields) => `${fields.join(" & ")} \\\\`;
  const lines = [`% ${grid.title}`, `\\begin{tabular}{l${"r".repeat(grid.head.length - 1)}}`, "\\hline", row(grid.head.map(inLatex)), "\\hline"];
  for (const block of grid.blocks) {
    lines.push(row([`\\multicolumn{${grid.head.length}}{l}{\\textit{${inLatex(block.name)}}}`]));
    for (const { name, fields } of block.rows) {
      const bold = (field) => (field?.shown.kind === "best" ? `\\textbf{${inLatex(textOf(field))}}` : inLatex(textOf(field)));
      lines.push(row([inLatex(name), ...fields.map(bold)]));
    }
  }
  return `${[...lines, "\\hline", "\\end{tabular}"].join("\n")}\n`;
}

// What LaTeX gives a meaning to; "[" and "*" would belong to the end of the row before.
const LATEX = {
  "\\": "\\textbackslash{}",
  "~": "\\textasciitilde{}",
  "^": "\\textasciicircum{}",
  '"': "\\char34{}",
  "[": "{[}",
  "*": "{*}",
  "<": "\\ensuremath{<}",
  ">": "\\ensuremath{>}",
  "|": "\\ensuremath{|}",
  "±": "\\ensuremath{\\pm}",
  "×": "\\ensuremath{\\times}",
  "≈": "\\ensuremath{\\approx}",
  "·": "\\ensuremath{\\cdot}",
  ...Object.fromEntries([..."&%$#_{}"].map((each) => [each, `\\${each}`])),
};
const UNSET = /[^\x20-\x7e\xa1-\xff\u2013\u2014\u2018\u2019\u201c\u201d…→]|[«»ÐÞðþ]/u;

function inLatex(text) {
  return [...text].map((each) => LATEX[each] ?? (UNSET.test(each) ? `\\textbackslash{}u\\{${each.codePointAt(0).toString(16)}\\}` : each)).join("");
}

const csvText = (rows) => `${rows.map((row) => row.map(inCsv).join(",")).join("\r\n")}\r\n`;

// RFC 4180. A text that a spreadsheet would calculate has an apostrophe before it; numbers stay numbers.
function inCsv(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  if (typeof value === "boolean") return String(value);
  const text = typeof value === "string" ? value : JSON.stringify(value);
  const safe = /^[=+\-@\uff1d\uff0b\uff0d\uff20\t\r\n]/.test(text) ? `'${text}` : text;
  return /[",]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

// Each column as its value, the ends of the interval, and the warnings; a cell without a number has its word as value.
function toCsv(grid) {
  const heads = grid.head.slice(1).flatMap((name) => [name, `${name}: low`, `${name}: high`, `${name}: warnings`]);
  const rows = grid.blocks.flatMap((block) => block.rows.map(({ name, fields }) => [block.name, name, ...fields.flatMap(csvFields)]));
  return csvText([["group", grid.head[0], ...heads], ...rows]);
}

function csvFields(field) {
  if (!field) return ["", "", "", ""];
  const { numbers, text } = field.shown;
  if (!numbers) return [text, "", "", ""];
  return [...numbers.map(rounded), field.cell.flags.map(([name]) => name).join(" ")];
}

const rounded = (value) => (value === null ? null : Number(value.toPrecision(6)));

function allCells(known) {
  const quantities = known.quantities.flatMap(({ name }) => [name, `${name}.low`, `${name}.high`]);
  const heads = ["machine", ...known.axes.map(({ name }) => name), "status", "reason", ...quantities, "method", "launches", "best", "warnings", "again"];
  const rows = known.cells.map((cell) => [
    known.machines[cell.machine].fingerprint,
    ...cell.at,
    cell.status,
    cell.reason,
    ...known.quantities.flatMap(({ name }) => cell.numbers[name] ?? [null, null, null]),
    cell.method,
    cell.of_launches,
    cell.best,
    cell.flags.map(([name]) => name).join(" "),
    cell.again,
  ]);
  return csvText([heads, ...rows]);
}
