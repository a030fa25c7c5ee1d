// Elements made from data. Text is always text: what comes from a job is never taken for HTML.

const SVG = "http://www.w3.org/2000/svg";

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

export const html = (name, attributes = {}, ...children) => filled(document.createElement(name), attributes, children);

export const svg = (name, attributes = {}, ...children) => filled(document.createElementNS(SVG, name), attributes, children);

// Exchanges what an element holds; the focus stays on what has the same id, and what was scrolled stays so.
export function show(id, ...children) {
  const place = document.getElementById(id);
  const focused = place.contains(document.activeElement) ? document.activeElement.id : null;
  const scrolled = [...place.querySelectorAll("[data-scrolls]")].map((one) => [one.dataset.scrolls, one.scrollTop, one.scrollLeft]);
  place.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined));
  for (const [name, top, left] of scrolled) {
    const again = place.querySelector(`[data-scrolls="${CSS.escape(name)}"]`);
    if (again) [again.scrollTop, again.scrollLeft] = [top, left];
  }
  if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
}

// A table of rows; columns are [title, cell of a row, "number" or nothing].
export function table(caption, columns, rows, name) {
  const head = html("tr", {}, columns.map(([title, , kind]) => html("th", { scope: "col", class: kind }, title)));
  const body = rows.map((row) => html("tr", {}, columns.map(([, cell, kind]) => html("td", { class: kind }, cell(row)))));
  return html("div", { class: "table", "data-scrolls": name, tabindex: rows.length > 12 ? 0 : null, id: `table-${name}` },
    html("table", {}, caption ? html("caption", {}, caption) : null, html("thead", {}, head), html("tbody", {}, body)));
}
