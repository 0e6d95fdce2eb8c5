// Elements of the page: what the data says becomes text, never markup.

const find = (id) => document.getElementById(id);

function make(tag, attributes, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

function drawn(tag, attributes, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (typeof value === "function") {
      element.addEventListener(name, value);
    } else if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(name, value === true ? "" : value);
    }
  }
  for (const child of children.flat()) {
    if (child instanceof Node) {
      element.append(child);
    } else if (child !== null && child !== undefined && child !== "") {
      element.append(String(child));
    }
  }
  return element;
}

function button(text, click, attributes = {}) {
  return make("button", { type: "button", click, ...attributes }, text);
}

// A box for a table or a picture wider than the page: it scrolls by itself, by keyboard too.
function wide(label, ...children) {
  return make("div", { class: "wide", role: "group", "aria-label": label, tabindex: "0" }, ...children);
}

// Long names of settings may break behind their signs.
function breakable(text) {
  return text.split(/(?<=[_+/:])/u).flatMap((piece) => [piece, make("wbr")]);
}
