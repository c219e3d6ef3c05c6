// Parts in columns with lines between them: what a request passes, and how the fleet hangs together.
//
// The parts are lists in the order of reading, and each names what it leads to. The lines are drawn over them, and are
// hidden from screen readers. Where there is no room for columns, they are rows.

import { make, words } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";
const PROBLEMS = new Set(["NotServing", "NotKnown", "NeedsAttention", "NotKnownYet"]);

/** Return a figure; `columns` have a title and nodes with id, text, state, note and href, `links` are pairs of ids, with the state where it is not that of the second. */
export function diagram(label, columns, links) {
  const elements = new Map();
  const texts = new Map(columns.flatMap((column) => column.nodes.map((node) => [node.id, node.text])));
  const lines = document.createElementNS(SVG, "svg");
  lines.setAttribute("aria-hidden", "true");
  const figure = make("div", { class: "diagram", role: "group", "aria-label": label },
    columns.map((column) => make("div", { class: "stage" },
      make("h4", {}, column.title),
      make("ul", {}, column.nodes.map((node) => {
        const element = make("li", { class: `node ${node.state ?? "Serving"}` }, part(node, links, texts));
        elements.set(node.id, element);
        return element;
      }), column.more ? make("li", { class: "quiet more" }, `and ${column.more} more`) : null))));
  figure.append(lines);
  const states = new Map(columns.flatMap((column) => column.nodes.map((node) => [node.id, node.state ?? "Serving"])));
  const draw = () => {
    const box = figure.getBoundingClientRect();
    if (!box.width) return;
    lines.setAttribute("viewBox", `0 0 ${box.width} ${box.height}`);
    lines.replaceChildren(...links.map(([from, to, state]) => line(box, elements.get(from), elements.get(to), state ?? states.get(to))).filter(Boolean));
  };
  new ResizeObserver(draw).observe(figure);
  return figure;
}

function part(node, links, texts) {
  const to = links.filter(([from]) => from === node.id).map(([, id]) => texts.get(id));
  return [
    node.href ? make("a", { href: node.href, class: "text" }, node.text) : make("span", { class: "text" }, node.text),
    make("span", { class: "away" }, `: ${words(node.state ?? "Serving")}`),
    node.note ? make("span", { class: "note", title: node.note }, node.note) : null,
    to.length ? make("span", { class: "away" }, `. Leads to ${to.join(", ")}`) : null,
  ];
}

function line(box, from, to, state) {
  if (!from || !to) return null;
  const [a, b] = [from.getBoundingClientRect(), to.getBoundingClientRect()];
  const across = b.left >= a.right - 1;
  const [x1, y1] = across ? [a.right, a.top + a.height / 2] : [a.left + Math.min(a.width / 2, 90), a.bottom];
  const [x2, y2] = across ? [b.left, b.top + b.height / 2] : [b.left + Math.min(b.width / 2, 90), b.top];
  const [mx, my] = [(x1 + x2) / 2, (y1 + y2) / 2];
  const bend = across ? `C${mx} ${y1} ${mx} ${y2} ${x2} ${y2}` : `C${x1} ${my} ${x2} ${my} ${x2} ${y2}`;
  const path = document.createElementNS(SVG, "path");
  const shift = (text) => text.replace(/-?[\d.]+ -?[\d.]+/g, (pair) => {
    const [x, y] = pair.split(" ").map(Number);
    return `${(x - box.left).toFixed(1)} ${(y - box.top).toFixed(1)}`;
  });
  path.setAttribute("d", shift(`M${x1} ${y1}${bend}`));
  path.setAttribute("class", PROBLEMS.has(state) ? state : state === "Idle" ? "Idle" : "Serving");
  return path;
}
