// Elements and times. Text from the hub only ever becomes text: nothing here parses markup.

/** Return an element with attributes and children; `on...` are listeners, null children are left out. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.flat(2).filter((child) => child !== null && child !== undefined));
  return element;
}

/** Return a table; `rows` are its rows. A narrow screen has the headers in the cells. */
export function table(title, headers, rows) {
  for (const row of rows) [...row.cells].forEach((cell, at) => { if (cell.tagName === "TD") cell.dataset.label = headers[at]; });
  return make("table", {}, make("caption", { class: "away" }, title),
    make("thead", {}, make("tr", {}, headers.map((text) => make("th", { scope: "col" }, text)))),
    make("tbody", {}, rows));
}

/** Return what an element that can have the focus is called, within its row; it stays the same when the box is drawn again. */
const focusKey = (element) => [element.closest("[data-id]")?.dataset.id, element.dataset.key ?? element.getAttribute("aria-label") ?? element.getAttribute("href")].join(" ");

/** Draw a box again; what had the focus in it has it again, else `otherwise` where it is given. */
export function redraw(box, draw, otherwise = "") {
  const active = document.activeElement;
  const inside = box.contains(active);
  const key = inside ? focusKey(active) : "";
  draw();
  if (!inside) return;
  const same = [...box.querySelectorAll("a, button, [tabindex]")].find((element) => focusKey(element) === key);
  (same ?? document.getElementById(otherwise))?.focus({ preventScroll: true });
}

/** Return how long ago a time (RFC 3339) was: 7s, 3m, 5h, 2d. */
export function age(text) {
  const seconds = (Date.now() - Date.parse(text)) / 1000;
  if (!text || Number.isNaN(seconds)) return "";
  for (const [limit, size, unit] of [[120, 1, "s"], [7200, 60, "m"], [172800, 3600, "h"]]) {
    if (seconds < limit) return `${Math.max(0, Math.floor(seconds / size))}${unit}`;
  }
  return `${Math.floor(seconds / 86400)}d`;
}

/** Return the same as an element, which is kept current while it is shown. */
export function ago(text) {
  return make("span", { "data-since": text ?? "" }, age(text));
}

/** Return a time of day and date as a <time>. */
export function when(text) {
  return make("time", { datetime: text }, text ? text.slice(0, 19).replace("T", " ") : "");
}

const WORDS = { Serving: "serves", Idle: "is idle", NeedsAttention: "needs attention", NotKnownYet: "is not known yet to serve", NotServing: "does not serve", NotKnown: "not known" };
const RANK = { NotKnown: 0, NotServing: 0, NotKnownYet: 1, NeedsAttention: 1 };

/** Return the words for a state. */
export function words(state) {
  return WORDS[state] ?? state;
}

/** Return the rank of an item by its state: what is worse comes first, what is well has 2. */
export function rank(item) {
  return RANK[item.state] ?? 2;
}

/** A command in a sentence: in backquotes, or as far as its clause. */
const COMMAND = /`((?:fairlead|kubectl) [^`]+)`|\b((?:fairlead|kubectl) [a-z].*?)(?=[;,] |\. | \(| and (?:fairlead|kubectl) |\.?$)/g;

/** Return the elements of a sentence: what it says, and each command in it to copy; one at its end is not said twice. */
export function sentence(text, otherwise = "") {
  const found = [...text.matchAll(COMMAND)];
  const atEnd = found.length === 1 && text.endsWith(found[0][0]);
  const said = atEnd ? text.slice(0, found[0].index).replace(/[\s;,]+$/, "") : text;
  const commands = found.map(([, quoted, plain]) => quoted ?? plain);
  return [said ? make("p", {}, said) : null, ...(commands.length || !otherwise ? commands : [otherwise]).map(copyable)];
}

/** Return a command with a button that copies it. */
export function copyable(text) {
  const code = make("code", {}, text);
  const button = make("button", { type: "button", "aria-label": `Copy: ${text}` }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      // A page that came over plain HTTP from another machine may not write to the clipboard.
      getSelection().selectAllChildren(code);
      button.textContent = "Selected";
    }
    announce(`${button.textContent}: ${text}`);
  });
  return make("div", { class: "command" }, code, button);
}

/** Return one problem: the sentence, and the command that helps. */
export function problem(text, state, otherwise = "") {
  return make("div", { class: `why ${state}` }, sentence(text, otherwise));
}

const said = document.getElementById("said");
let waiting = null;

/** Have a screen reader say a sentence; of several within a second the last one. */
export function announce(text) {
  clearTimeout(waiting);
  waiting = setTimeout(() => { said.textContent = text; }, 400);
}
