// Plan, regions, members, proxies and addresses, names, zones and certificates: drawn anew when something in them has changed.

import { age, command, copyable, make, problem, table, when, words } from "./dom.js";

/** More than that are counted, not drawn; what is not well comes first. */
const MOST = 300;
const RANK = { NotKnown: 0, NotServing: 0, NotKnownYet: 1, NeedsAttention: 1 };
const rank = (item) => RANK[item.state] ?? 2;
const byId = (table) => [...table.values()].sort((a, b) => rank(a) - rank(b) || a.id.localeCompare(b.id));
const stateCell = (item, text) => make("td", {}, make("span", { class: `state ${item.state ?? "Serving"}` }, text),
  (item.problems ?? []).map((sentence) => problem(sentence, item.state)));

function section(title, id, headers, rows, empty) {
  return [
    make("h2", { id }, `${title}${rows.length ? ` (${rows.length})` : ""}`),
    rows.length
      ? make("div", { class: "card" }, table(title, headers, rows.slice(0, MOST)), more(rows))
      : nothing(empty),
  ];
}

const more = (rows) => (rows.length > MOST ? make("p", { class: "quiet" }, `and ${rows.length - MOST} more`) : null);

/** Return an empty state: a sentence, and the command in it where there is one. */
function nothing(sentence) {
  const [said, todo] = command(sentence);
  return make("div", { class: "card empty" }, make("p", {}, said), todo ? copyable(todo) : null);
}

/** What the hub is about to do, and what it holds. */
export function plan(tables) {
  const items = byId(tables.plan);
  const held = items.reduce((sum, item) => sum + (item.held ?? 0), 0);
  return [
    make("div", { class: "bar" }, make("h2", { id: "title-plan" }, "Plan"),
      items.length ? make("p", { class: "quiet" }, `${held} held, ${items.reduce((sum, item) => sum + item.rows.filter((row) => !row.heldBy).length, 0)} next`) : null),
    items.length ? null : nothing("Nothing waits and nothing is held: all is as it was asked for."),
    ...items.slice(0, MOST).map(planned),
    items.length > MOST ? make("p", { class: "quiet" }, `and ${items.length - MOST} more: fairlead plan`) : null,
  ].filter(Boolean);
}

function planned(item) {
  return make("article", { class: "card plan", "data-id": item.id },
    make("h3", {}, make("a", { href: item.id.startsWith("Hostname/") ? "#/names" : `#/load-balancers/${item.id}` }, item.title), item.provider ? make("span", { class: "quiet" }, ` ${item.provider}`) : null),
    (item.problems ?? []).map((sentence) => problem(sentence, "NeedsAttention")),
    table(`Plan of ${item.title}`, ["Change", "Of", "Why"], item.rows.map(planRow)),
    item.more ? make("p", { class: "quiet" }, `and ${item.more} more`) : null,
    copyable(item.command));
}

function planRow(row) {
  const [why, todo] = command(row.message ?? "");
  return make("tr", {},
    make("td", {}, make("span", { class: row.heldBy ? "state NeedsAttention" : "next" }, row.heldBy ? `${row.action}, held` : row.action)),
    make("td", { class: "mono" }, row.what, (row.fields ?? []).map(([name, old, now]) => make("p", { class: "quiet" }, `${name}: ${old || "-"} → ${now || "-"}`))),
    make("td", {}, row.reason, row.heldBy ? make("p", {}, `Held by ${row.heldBy}${why ? `: ${why}` : ""}`) : null, todo ? copyable(todo) : null));
}

/** Services with an access point in each region. */
export function regions(tables) {
  const rows = [...tables.region.values()]
    .sort((a, b) => a.namespace.localeCompare(b.namespace) || a.service.localeCompare(b.service) || a.region.localeCompare(b.region));
  let above = "";
  return section("Regions", "title-regions", ["Service", "Region", "State", "Address", "Backends", "Class"], rows.map((item) => {
    const service = `${item.namespace}/${item.service}`;
    const same = service === above;
    above = service;
    return make("tr", { "data-id": item.id, class: same ? "same" : null },
      make("th", { scope: "row" }, same ? make("span", { class: "away" }, service) : service),
      make("td", {}, item.region),
      stateCell(item, item.state ? item.reason : words("Serving")),
      make("td", { class: "mono" }, item.address || "pending"),
      make("td", {}, item.targets || "-"),
      make("td", {}, item.className || "-"));
  }), "No Service has an access point for each region. Those of an annotated Service are made by: fairlead regions");
}

/** Members with their regions. */
export function members(tables) {
  const counts = new Map();
  for (const lb of tables.lb.values()) counts.set(lb.namespace, (counts.get(lb.namespace) ?? 0) + 1);
  const rows = byId(tables.member).map((item) => make("tr", { "data-id": item.id },
    make("th", { scope: "row" }, item.id),
    make("td", {}, item.region || "-"),
    stateCell(item, item.heard ? `${item.connection}, last seen ${age(item.heard)} ago` : item.connection),
    make("td", {}, String(counts.get(item.namespace) ?? 0))));
  return section("Members", "title-members", ["Member", "Region", "Agent", "Load balancers"], rows,
    "No members yet. Add one with: fairlead tenant add NAME");
}

/** Proxies that are connected, and the pools that load balancers on them get addresses from. */
export function proxies(tables) {
  const rows = byId(tables.proxy).map((item) => make("tr", { "data-id": item.id },
    make("th", { scope: "row", class: "mono" }, item.id),
    make("td", {}, item.group),
    stateCell(item, item.synced === false ? "has not acknowledged the newest state" : "has the newest state"),
    make("td", {}, String(item.refused ?? 0))));
  const pools = byId(tables.pool).map((item) => make("tr", { "data-id": item.id },
    make("th", { scope: "row" }, item.id),
    make("td", { class: "mono" }, item.addresses.join(", ")),
    stateCell(item, item.state ? words(item.state) : "gives addresses"),
    make("td", {}, `${item.used ?? 0} of ${item.size ?? 0}`, item.reserved ? make("p", { class: "quiet" }, `${item.reserved} reserved`) : null,
      item.outside ? make("p", { class: "quiet" }, `${item.outside} given and not in it any more`) : null),
    make("td", {}, item.region || "-")));
  return [
    ...section("Proxies", "title-proxies", ["Proxy", "Group", "State", "Refused"], rows, "No proxy is connected to this hub."),
    ...section("Address pools", "title-pools", ["Pool", "Addresses", "State", "Used", "Region"], pools,
      "No AddressPool: addresses are those of the hub's --address-pool."),
  ];
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
  const zones = byId(tables.zone).map((item) => make("tr", { "data-id": item.id },
    make("th", { scope: "row" }, item.zone),
    make("td", {}, item.provider),
    make("td", { class: "mono" }, item.server || "-"),
    stateCell(item, item.dryRun ? "plans only (dryRun)" : item.state ? words(item.state) : "is written"),
    make("td", {}, String(item.names ?? 0))));
  return [
    ...section("Names", "title-names", ["Name", "Zone", "State"], hosts, "No host names."),
    ...section("Zones", "title-zones", ["Zone", "Provider", "Server", "State", "Names"], zones, "No DNSZone: the hub writes no records."),
    ...section("Certificates", "title-certificates", ["Names", "Issuer", "State", "Ends (UTC)"], certificates,
      "The hub gets no certificates itself."),
  ];
}
