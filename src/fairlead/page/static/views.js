// Plan, regions, members, classes and proxies, names: drawn again when something in them has changed.

import { ago, copyable, make, problem, rank, sentence, table, when, words } from "./dom.js";
import { session } from "./stream.js";

/** More than that are counted, not drawn; what is not well comes first. */
const MOST = 300;
const PLAN = "fairlead plan";
const byId = (table) => [...table.values()].sort((a, b) => rank(a) - rank(b) || a.id.localeCompare(b.id));
const stateCell = (item, text) => make("td", {}, make("span", { class: `state ${item.state ?? "Serving"}` }, text),
  (item.problems ?? []).map((each) => problem(each, item.state)));
const row = (item, title, ...cells) => make("tr", { "data-id": item.id }, make("th", { scope: "row" }, title), cells);
const cell = (text, attributes = {}) => make("td", attributes, text || "-");
const mono = (text) => cell(text, { class: "mono" });
const quiet = (text) => make("p", { class: "quiet" }, text);

const rest = (count, all) => make("div", { class: "rest quiet" }, sentence(`and ${count} more; all of them: ${all}`));

function section(title, id, headers, rows, empty, all = "fairlead status") {
  return [
    make("h2", { id }, `${title}${rows.length ? ` (${rows.length})` : ""}`),
    rows.length
      ? make("div", { class: "card" }, table(title, headers, rows.slice(0, MOST)),
        rows.length > MOST ? rest(rows.length - MOST, all) : null)
      : nothing(empty),
  ];
}

/** Return an empty state: a sentence, and the command in it where there is one. */
function nothing(text) {
  return make("div", { class: "card empty" }, sentence(text),
    session.token ? make("p", {}, "Your token may not be allowed to list all of them.") : null);
}

/** What the hub is about to do, and what it holds. */
export function plan(tables) {
  const items = byId(tables.plan);
  const held = items.reduce((sum, item) => sum + (item.held ?? 0), 0);
  const all = items.reduce((sum, item) => sum + item.rows.length + (item.more ?? 0), 0);
  const [hub] = tables.hub.values();
  return [
    make("div", { class: "bar" }, make("h2", { id: "title-plan" }, "Plan"),
      items.length ? quiet(`${held} held, ${all - held} pending`) : null),
    hub && !hub.leading
      ? problem(`This hub is on standby. It shows held changes, but not what the leader is about to do with load balancers that have records (HAProxy, drivers): ${PLAN}`, "NeedsAttention") : null,
    items.length ? null : nothing(`${hub?.leading ? "No change is pending or held." : "No change is held."}${unwell(tables)}`),
    ...items.slice(0, MOST).map((item) => planned(item, tables.lb.get(item.id))),
    items.length > MOST ? rest(items.length - MOST, PLAN) : null,
  ].filter(Boolean);
}

/** Return how many load balancers are not as they were asked for: a refusal, for example, is not a plan. */
function unwell(tables) {
  const count = [...tables.lb.values()].filter((item) => rank(item) < 2).length;
  return count ? ` ${count} load balancer${count > 1 ? "s have" : " has"} a problem; rejected objects have no plan.` : "";
}

function planned(item, lb) {
  const title = lb?.shown ?? item.title;
  return make("article", { class: "card plan", "data-id": item.id },
    make("h3", {}, make("a", { href: item.id.startsWith("Hostname/") ? "#/names" : `#/load-balancers/${item.id}` }, title), item.provider ? make("span", { class: "quiet" }, ` ${item.provider}`) : null),
    (item.problems ?? []).map((each) => problem(each, "NeedsAttention")),
    table(`Plan of ${title}`, ["Change", "Object", "Reason"], item.rows.map(planRow)),
    item.more ? quiet(`and ${item.more} more`) : null,
    copyable(item.command));
}

function planRow(each) {
  return make("tr", {},
    make("td", {}, make("span", { class: each.heldBy ? "state NeedsAttention" : "next" }, each.heldBy ? `${each.action}, held` : each.action)),
    mono([each.what, (each.fields ?? []).map(([name, old, now]) => quiet(`${name}: ${old || "-"} → ${now || "-"}`))]),
    cell([each.reason, each.heldBy ? sentence(`Held by ${each.heldBy}${each.message ? `: ${each.message}` : ""}`) : null]));
}

/** Services with an access point in each region; those with a faulty region come first. */
export function regions(tables) {
  const worst = new Map();
  const of = (item) => `${item.namespace}/${item.service}`;
  for (const item of tables.region.values()) worst.set(of(item), Math.min(rank(item), worst.get(of(item)) ?? 2));
  const items = [...tables.region.values()].sort((a, b) => worst.get(of(a)) - worst.get(of(b))
    || of(a).localeCompare(of(b)) || a.region.localeCompare(b.region));
  const rows = items.map((item, at) => {
    const service = of(item);
    const same = at > 0 && service === of(items[at - 1]);
    const element = row(item, same ? make("span", { class: "away" }, service) : service, cell(item.region),
      stateCell(item, item.state ? item.reason || words(item.state) : words("Serving")),
      mono(item.address || "pending"), cell((item.targets ?? "").replace(/ healthy$/, "")), cell(item.className));
    if (same) element.className = "same";
    return element;
  });
  return section("Regions", "title-regions", ["Service", "Region", "State", "Address", "Backends", "Class"], rows,
    "No Service has an access point in each region. Annotate a Service, and run: fairlead regions");
}

/** Members with their regions, and the Services that those of a cluster set share. */
export function members(tables) {
  const counts = new Map();
  for (const lb of tables.lb.values()) counts.set(lb.namespace, (counts.get(lb.namespace) ?? 0) + 1);
  const rows = byId(tables.member).map((item) => row(item, item.id, cell(item.region),
    stateCell(item, [item.connection, item.heard ? [", last seen ", ago(item.heard), " ago"] : null]),
    cell([String(counts.get(item.namespace) ?? 0), (item.refused ?? []).map((each) => problem(each, "NotServing"))])));
  const shared = byId(tables.shared).map((item) => row(item, item.service, cell(item.clusterSet),
    cell((item.exportedBy ?? []).join(", ")), cell((item.importedBy ?? []).join(", ")), stateCell(item, item.reason)));
  return [
    ...section("Members", "title-members", ["Member", "Region", "Agent", "Load balancers"], rows,
      "No members yet. Add one with: fairlead tenant add NAME", "fairlead tenant list"),
    ...(shared.length ? section("Shared Services", "title-shared", ["Service", "Cluster set", "Exported by", "Imported by", "State"], shared, "", "fairlead status -o wide") : []),
  ];
}

/** Classes, proxies that are connected, proxy machines, the pools that they get addresses from, and groups of backends. */
export function proxies(tables) {
  const classes = byId(tables.class).map((item) => row(item, item.id, cell(item.provider),
    stateCell(item, words(item.state ?? "accepts load balancers")), cell(String(item.loadBalancers ?? 0))));
  const rows = byId(tables.proxy).map((item) => row(item, item.id, cell(item.group),
    stateCell(item, item.synced === false ? "has not acknowledged the newest state" : "has the newest state"),
    cell(String(item.refused ?? 0))));
  const pools = byId(tables.pool).map((item) => row(item, item.id, mono(item.addresses.join(", ")),
    stateCell(item, words(item.state ?? "allocates addresses")),
    cell([`${item.used ?? 0} of ${item.size ?? 0}`, item.reserved ? quiet(`${item.reserved} reserved`) : null,
      item.note ? quiet(item.note === "Full" ? "full" : "almost full") : null,
      item.outside ? quiet(`${item.outside} allocated but no longer in the pool`) : null]),
    cell(item.region)));
  const machines = byId(tables.machine).map((item) => row(item, item.id, cell(item.group),
    stateCell(item, [item.drained && item.ready === "Ready" ? "Drained" : item.ready, item.since ? [", for ", ago(item.since)] : null]), cell(item.announcing),
    cell([make("span", { class: "mono" }, (item.addresses ?? []).join(", ") || "-"),
      (item.announced ?? 0) > (item.addresses ?? []).length ? quiet(`and ${item.announced - (item.addresses ?? []).length} more`) : null]),
    cell(item.envoy)));
  const groups = byId(tables.group).map((item) => row(item, item.id, cell(item.loadBalancers.join(", ")),
    stateCell(item, words(item.state ?? "is registered")), cell(`${item.registered ?? 0} of ${item.backends ?? 0}`)));
  return [
    ...section("Classes", "title-classes", ["Class", "Provider", "State", "Load balancers"], classes, "No LoadBalancerClass.", "kubectl get lbc"),
    ...section("Proxies", "title-proxies", ["Proxy", "Group", "State", "Refused"], rows, "No proxy is connected to this hub."),
    ...(machines.length ? section("Proxy machines", "title-machines", ["Machine", "Group", "State", "Announcing", "Addresses", "Envoy"], machines, "", "fairlead proxy list") : []),
    ...section("Address pools", "title-pools", ["Pool", "Addresses", "State", "Used", "Region"], pools,
      "No address pool. This hub allocates no addresses.", "kubectl get addresspools"),
    ...(groups.length ? section("Groups of backends", "title-groups", ["Group", "Load balancers", "State", "Registered"], groups, "", "kubectl get bg -A") : []),
  ];
}

/** Names, zones, and certificates with their expiry. */
export function names(tables) {
  const hosts = byId(tables.name).map((item) => row(item, item.host, cell(item.zone), mono((item.pointsTo ?? []).join(", ")),
    stateCell(item, item.published ? "is published" : !item.zone ? "is in no zone; no record is written" : item.state === "Idle" ? "is not published yet" : words(item.state))));
  const zones = byId(tables.zone).map((item) => row(item, item.zone, cell(item.provider), mono(item.server),
    stateCell(item, item.dryRun ? "plans only (dryRun)" : words(item.state ?? "is up to date")), cell(String(item.names ?? 0))));
  const certificates = byId(tables.certificate).map((item) => row(item, (item.hosts ?? []).join(", "), cell(item.issuer),
    // What was never issued serves nothing yet.
    stateCell(item.state || item.ends ? item : { ...item, state: "Idle" }, item.step), cell(item.ends ? when(item.ends) : "")));
  return [
    ...section("Names", "title-names", ["Name", "Zone", "Points to", "State"], hosts, "No host names.", "fairlead names"),
    ...section("Zones", "title-zones", ["Zone", "Provider", "Server", "State", "Names"], zones, "No DNSZone: the hub writes no records.", "kubectl get dnszones"),
    ...section("Certificates", "title-certificates", ["Names", "Issuer", "State", "Expires (UTC)"], certificates,
      "No certificates. The hub requests none.", "kubectl get managedcertificates -A"),
  ];
}
