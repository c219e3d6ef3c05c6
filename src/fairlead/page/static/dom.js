// Elements and times. Text from the hub only ever becomes text: nothing here parses markup.

/** Return an element with attributes and children; `on...` are listeners, null children are left out. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** Return a table; `rows` are its rows. A narrow screen has the headers in the cells. */
export function table(title, headers, rows) {
  for (const row of rows) [...row.cells].forEach((cell, at) => { if (cell.tagName === "TD") cell.dataset.label = headers[at]; });
  return make("table", {}, make("caption", { class: "away" }, title),
    make("thead", {}, make("tr", {}, headers.map((text) => make("th", { scope: "col" }, text)))),
    make("tbody", {}, rows));
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

/** Return a time of day and date as a <time>. */
export function when(text) {
  return make("time", { datetime: text }, text ? text.slice(0, 19).replace("T", " ") : "");
}

const WORDS = { Serving: "serves", Idle: "is idle", NeedsAttention: "needs attention", NotKnownYet: "is not known yet to serve", NotServing: "does not serve", NotKnown: "not known" };

/** Return the words for a state. */
export function words(state) {
  return WORDS[state] ?? state;
}

/** Split a sentence into what it says and the command in it, which is empty where there is none. */
export function command(sentence) {
  const at = sentence.search(/\b(fairlead|kubectl) [a-z]/);
  return at < 0 ? [sentence, ""] : [sentence.slice(0, at).replace(/[\s;,]+$/, ""), sentence.slice(at)];
}

/** Return a command with a button that copies it. */
export function copyable(text) {
  const button = make("button", { type: "button", "aria-label": `Copy: ${text}` }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Select it";
    }
  });
  return make("div", { class: "command" }, make("code", { tabindex: "0" }, text), button);
}

/** Return one problem: the sentence, and the command that helps. */
export function problem(sentence, state, otherwise = "") {
  const [said, found] = command(sentence);
  const todo = found || otherwise;
  return make("div", { class: `why ${state}` }, make("p", {}, said), todo ? copyable(todo) : null);
}

const said = document.getElementById("said");
let waiting = null;

/** Have a screen reader say a sentence; of several within a second the last one. */
export function announce(sentence) {
  clearTimeout(waiting);
  waiting = setTimeout(() => { said.textContent = sentence; }, 400);
}
