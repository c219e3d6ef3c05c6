// The hub's stream of changes: everything once, then what changes; begun again whenever it ends.

const SILENT_MS = 40_000;
const LONGEST_PAUSE_MS = 5_000;

/** The token of this tab, empty where none is needed. */
export const session = {
  get token() { return sessionStorage.getItem("token") ?? ""; },
  set token(value) { sessionStorage.setItem("token", value); },
};

/** Ask the hub with the token of this tab. */
export function ask(path, options = {}) {
  const headers = { ...options.headers, ...(session.token ? { Authorization: `Bearer ${session.token}` } : {}) };
  return fetch(path, { ...options, headers, cache: "no-store", credentials: "omit" });
}

/** Ask the hub to change a load balancer as the one whose token this is. */
export function change(item, action) {
  const headers = { "Content-Type": "application/json" };
  return ask(actionsOf(item), { method: "POST", headers, body: JSON.stringify({ action }) });
}

/** Return the path of what can be done to a load balancer. */
export function actionsOf(item) {
  return `/page/actions/${[item.kind, item.namespace, item.name].map(encodeURIComponent).join("/")}`;
}

/** Follow the stream without end: on.all, on.change get tables; on.lost, on.refused a sentence; on.open nothing. */
export async function follow(on) {
  let failures = 0;
  for (;;) {
    let sentence = "The connection to the hub is lost.";
    const ended = new AbortController();
    let watchdog = setTimeout(() => ended.abort(), SILENT_MS);
    try {
      const answer = await ask("/page/events", { signal: ended.signal });
      if (answer.status === 401 || answer.status === 403) {
        clearTimeout(watchdog);
        await on.refused(await answer.text());
        continue;
      }
      if (!answer.ok) throw new Error(await answer.text());
      on.open();
      failures = 0;
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        clearTimeout(watchdog);
        watchdog = setTimeout(() => ended.abort(), SILENT_MS);
        const parts = (rest + value).split("\n\n");
        rest = parts.pop();
        for (const part of parts) take(part, on);
      }
    } catch (error) {
      if (error.message && error.name === "Error") sentence = error.message.trim();
    }
    clearTimeout(watchdog);
    on.lost(sentence);
    await new Promise((resume) => setTimeout(resume, Math.min(LONGEST_PAUSE_MS, 250 * 2 ** failures)));
    failures += 1;
  }
}

function take(part, on) {
  const fields = Object.fromEntries(part.split("\n").map((line) => {
    const at = line.indexOf(": ");
    return [line.slice(0, at), line.slice(at + 2)];
  }));
  if (fields.event && on[fields.event]) on[fields.event](JSON.parse(fields.data));
}
