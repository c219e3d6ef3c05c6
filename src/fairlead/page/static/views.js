// Members, proxies, names and certificates: tables that are drawn anew when something in them has changed.

import { age, make, problem, when, words } from "./dom.js";

const byId = (table) => [...table.values()].sort((a, b) => a.id.localeCompare(b.id));
const stateCell = (item, text) => make("td", {}, make("span", { class: `state ${item.state ?? "Serving"}` }, text),
  (item.problems ?? []).map((sentence) => problem(sentence, item.state)));

function table(title, id, headers, rows, empty) {
  return [
    make("h2", { id }, `${title}${rows.length ? ` (${rows.length})` : ""}`),
    rows.length
      ? make("div", { class: "card" }, make("table", {},
        make("caption", { class: "away" }, title),
        make("thead", {}, make("tr", {}, headers.map((text) => make("th", { scope: "col" }, text)))),
        make("tbody", {}, rows)))
      : make("p", { class: "empty" }, empty),
  ];
}

/** Members with their regions. */
export function members(tables) {
  const counts = new Map();
  for (const lb of tables.lb.values()) counts.set(lb.namespace, (counts.get(lb.namespace) ?? 0) + 1);
  const rows = byId(tables.member).map((item) => make("tr", { "data-id": item.id },
    make("th", { scope: "row" }, item.id),
    make("td", {}, item.region || "-"),
    stateCell(item, item.heard ? `${item.connection}, last heard ${age(item.heard)} ago` : item.connection),
    make("td", {}, String(counts.get(item.namespace) ?? 0))));
  return table("Members", "title-members", ["Member", "Region", "Agent", "Load balancers"], rows,
    "No members yet. Add one with: fairlead tenant add NAME");
}

/** Proxies that are connected. */
export function proxies(tables) {
  const rows = byId(tables.proxy).map((item) => make("tr", { "data-id": item.id },
    make("th", { scope: "row", class: "mono" }, item.id),
    make("td", {}, item.group),
    stateCell(item, item.synced === false ? "has not acknowledged the newest state" : "has the newest state"),
    make("td", {}, String(item.refused ?? 0))));
  return table("Proxies", "title-proxies", ["Proxy", "Group", "State", "Refused"], rows,
    "No proxy is connected to this hub.");
}

/** Names, and certificates with their ends. */
export function names(tables) {
  const certificates = byId(tables.certificate).map((item) => make("tr", { "data-id": item.id },
    make("th", { scope: "row" }, (item.hosts ?? []).join(", ")),
    make("td", {}, item.issuer || "-"),
    stateCell(item, item.step),
    make("td", {}, item.ends ? when(item.ends) : "-")));
  const hosts = byId(tables.name).map((item) => make("tr", { "data-id": item.id },
    make("th", { scope: "row" }, item.host),
    make("td", {}, item.zone || "-"),
    stateCell(item, words(item.state ?? "Serving"))));
  return [
    ...table("Names", "title-names", ["Name", "Zone", "State"], hosts, "No host names."),
    ...table("Certificates", "title-certificates", ["Names", "Issuer", "State", "Ends (UTC)"], certificates,
      "The hub gets no certificates itself."),
  ];
}
