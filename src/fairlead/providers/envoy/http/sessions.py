"""Keeps the requests of a session at one target, also where a rule has several backends.

Envoy's filter finds the target of a session within one cluster, and the weights choose the cluster before. So a rule
with several backends has a second cookie, which names the backend, and an entry for each backend that is met by this
cookie: it leads there alone, at weight 0 too. A backend without a usable target has no such entry, so its sessions
begin again elsewhere.

A client has one cookie for a name and path of a host. Two rules whose sessions would share one send each other's
sessions elsewhere, unless they have the same backends. So the older route, or the first rule of a route, keeps the name
that its user chose, and the other gets a name of its own.

Envoy's filter alone would show clients the addresses of targets in base64, and let them choose one. So a script in
front of it turns a sealed value of the client into the header that the filter reads, and the other way round. The
value has the address, when the session began, and when it was last seen. It is the same at every proxy, which keeps
nothing. Its key is that of the hub and the load balancer.

In: a route and its rule. Out: names of cookies, the filters' settings, the header that sets the second cookie.
Source: https://en.wikipedia.org/wiki/XTEA
Source: https://www.rfc-editor.org/rfc/rfc5297 (SIV: the tag first, then counter mode)
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping
from hashlib import blake2b

import msgspec
from msgspec.structs import replace

from fairlead.model.http import BackendRef, PathMatch, RequestMatch, Route, Rule, SessionPersistence
from fairlead.model.keys import LoadBalancerKey
from fairlead.providers.envoy.http.names import normal, patterns_for
from fairlead.providers.envoy.http.route_match import age, prefix_of
from fairlead.providers.envoy.resources import Fields, Schema

STATEFUL_SESSION = "envoy.filters.http.stateful_session"
_LUA = "envoy.filters.http.lua"
_LUA_TYPE = "envoy.extensions.filters.http.lua.v3.Lua"
_SCRIPT = "session"
#: Between the script and Envoy's filter; neither clients nor backends see or set it.
SESSION_HEADER = "x-fairlead-session"
#: Paths that can be the Path attribute of a cookie unchanged.
_COOKIE_PATH = re.compile(r"/[0-9A-Za-z/._~-]*")


def session_name(route: Route, rule: Rule) -> str:
    """Return the name of a rule's cookie or header; one that users do not name is that of the rule alone."""
    if rule.session is None:
        return ""
    return rule.session.name or f"fairlead-session-{_digest_of_rule(route, rule)}"


def own_cookies(
    routes: Iterable[tuple[Route, tuple[Rule | None, ...]]], hostnames: Mapping[str, str]
) -> dict[str, tuple[Rule | None, ...]]:
    """Return, by route, rules with cookies of their own: those whose sessions would share the cookie of other rules.

    ``routes`` are routes with what is served of their rules, ``hostnames`` those of the listeners, by name.
    """
    taken: dict[tuple[str, str], _CookieHosts] = {}
    changed: dict[str, tuple[Rule | None, ...]] = {}
    with_cookies = [(route, rules) for route, rules in routes if any(map(named_cookie, rules))]
    for route, rules in sorted(with_cookies, key=lambda served: age(served[0])):
        hosts = {
            normal(host)
            for attachment in route.attachments
            for host in attachment.hostnames or (hostnames.get(attachment.listener, ""),)
        }
        kept = list(rules)
        for number, rule in enumerate(rules):
            session = named_cookie(rule)
            if rule is None or session is None:
                continue
            backends = frozenset(backend.backend for backend in rule.backends)
            if not taken.setdefault((session.name, _path(rule)), _CookieHosts()).take(hosts, backends):
                name = f"{session.name}-{_digest_of_rule(route, rule)}"
                kept[number] = replace(rule, session=replace(session, name=name))
                changed[route.name] = ()
        if route.name in changed:
            changed[route.name] = tuple(kept)
    return changed


class _CookieHosts:
    """The hosts at which rules have one cookie, each with the backends of these rules."""

    def __init__(self) -> None:
        self._at: dict[str, set[frozenset[str]]] = {}
        #: By pattern, those of all hosts that it covers.
        self._covered: dict[str, set[frozenset[str]]] = {}

    def take(self, hosts: Iterable[str], backends: frozenset[str]) -> bool:
        """Add a rule; return whether no rule with other backends has the cookie at one of its hosts."""
        same = {backends}
        for host in hosts:
            above = (self._at.get(pattern, same) for pattern in patterns_for(host))
            if any(others - same for others in (*above, self._covered.get(host, same))):
                return False
        for host in hosts:
            self._at.setdefault(host, set()).add(backends)
            for pattern in patterns_for(host):
                self._covered.setdefault(pattern, set()).add(backends)
        return True


def named_cookie(rule: Rule | None) -> SessionPersistence | None:
    """Return the session of a rule that is kept by a cookie which its user named, None for every other."""
    session = rule.session if rule is not None else None
    return session if session is not None and session.type == "Cookie" and session.name else None


def backends_of_sessions(rule: Rule) -> list[BackendRef]:
    """Return the backends that a rule's sessions choose between; none when there is at most one."""
    if rule.session is None or rule.session.type != "Cookie" or rule.filters.redirect is not None:
        return []
    backends = {backend.backend: backend for backend in rule.backends if backend.backend}
    return list(backends.values()) if len(rule.backends) > 1 else []


def at_backend(rule: Rule, backend: BackendRef) -> Rule:
    """Return the rule as the sessions of one of its backends meet it."""
    return replace(rule, backends=(replace(backend, weight=1),))


def backend_cookie(route: Route, rule: Rule, backend: BackendRef) -> str:
    """Return the cookie that names the backend of a session, with its value."""
    return f"{session_name(route, rule)}-backend={_digest(backend.backend)}"


def backend_of_cookies(route: Route, rule: Rule, cookies: Iterable[str]) -> BackendRef | None:
    """Return the backend that Cookie headers name, None when they name none."""
    texts = list(cookies)
    return next(
        (
            backend
            for backend in backends_of_sessions(rule)
            if any(backend_cookie(route, rule, backend) in text for text in texts)
        ),
        None,
    )


def set_backend_cookie(route: Route, rule: Rule, backend: BackendRef) -> Fields:
    """Return the response header that gives a session its backend."""
    session = rule.session or SessionPersistence()
    # One that ends when it is idle is set with each response.
    age_s = session.idle_timeout_s or session.absolute_timeout_s
    age = f"; Max-Age={age_s}" if age_s else ""
    value = f"{backend_cookie(route, rule, backend)}; Path={_path(rule)}{age}; HttpOnly"
    return {"header": {"key": "set-cookie", "value": value}, "append_action": "APPEND_IF_EXISTS_OR_ADD"}


def session_settings(schema: Schema, route: Route, rule: Rule) -> Mapping[str, Fields]:
    """Return the settings of the two filters for a rule; empty when it keeps no sessions."""
    session = rule.session
    if session is None:
        return {}
    state = schema.extension(
        "envoy.http.stateful_session.header",
        "envoy.extensions.http.stateful_session.header.v3.HeaderBasedSessionState",
        {"name": SESSION_HEADER},
    )
    settings = schema.any(
        "envoy.extensions.filters.http.stateful_session.v3.StatefulSessionPerRoute",
        {"stateful_session": {"session_state": state}},
    )
    context = {
        "name": session_name(route, rule),
        # A cookie has a path, a header has none.
        "path": _path(rule) if session.type == "Cookie" else "",
        "absolute": session.absolute_timeout_s,
        "idle": session.idle_timeout_s,
    }
    script = schema.any(f"{_LUA_TYPE}PerRoute", {"name": _SCRIPT, "filter_context": context})
    return {STATEFUL_SESSION: settings, _LUA: script}


def session_filter(schema: Schema, key: bytes, load_balancer: LoadBalancerKey) -> Fields:
    """Return the filter that seals the sessions of a load balancer; ``key`` is that of the hub, at most 64 bytes."""
    parts = struct.unpack(">8I", blake2b(str(load_balancer).encode(), key=key, digest_size=32).digest())
    script = _SEAL.replace("WORDS", ", ".join(map(str, parts))).replace("HEADER", SESSION_HEADER)
    filter_ = schema.extension(_LUA, _LUA_TYPE, {"source_codes": {_SCRIPT: {"inline_string": script}}})
    return {**filter_, "disabled": True}


#: Seals 8 bytes of times and an address of 32 or 64, zeros behind it: a tag of 8 bytes, then the text in counter mode,
#: in hexadecimal. The tag is a CBC-MAC that begins with the length. The first four words are its key.
_SEAL = """
local band, bor, bxor, lshift, rshift, tobit = bit.band, bit.bor, bit.bxor, bit.lshift, bit.rshift, bit.tobit
local words = {WORDS}

local function encrypt(first, a, b)
  local sum = 0
  for _ = 1, 32 do
    a = tobit(a + bxor(bxor(lshift(b, 4), rshift(b, 5)) + b, sum + words[first + band(sum, 3)]))
    sum = tobit(sum + 0x9E3779B9)
    b = tobit(b + bxor(bxor(lshift(a, 4), rshift(a, 5)) + a, sum + words[first + band(rshift(sum, 11), 3)]))
  end
  return a, b
end

local function word(text, at)
  local a, b, c, d = text:byte(at, at + 3)
  return bor(lshift(a, 24), lshift(b, 16), lshift(c, 8), d)
end

local function bytes(number)
  return string.char(band(rshift(number, 24), 255), band(rshift(number, 16), 255), band(rshift(number, 8), 255),
    band(number, 255))
end

local function tag(text)
  local a, b = encrypt(1, #text, 0)
  for at = 1, #text, 8 do
    a, b = encrypt(1, bxor(a, word(text, at)), bxor(b, word(text, at + 4)))
  end
  return a, b
end

local function mask(text, a, b)
  local parts = {}
  for at = 1, #text, 8 do
    local c, d = encrypt(5, bxor(a, at), b)
    parts[#parts + 1] = bytes(bxor(c, word(text, at))) .. bytes(bxor(d, word(text, at + 4)))
  end
  return table.concat(parts)
end

local function seal(address, created, seen)
  local text = bytes(created) .. bytes(seen) .. address .. string.rep("\\0", (#address > 32 and 64 or 32) - #address)
  local a, b = tag(text)
  local sealed = bytes(a) .. bytes(b) .. mask(text, a, b)
  return (sealed:gsub(".", function(byte) return string.format("%02x", byte:byte()) end))
end

local function unseal(value)
  if (#value ~= 96 and #value ~= 160) or value:find("[^0-9a-f]") then return nil end
  local sealed = value:gsub("..", function(byte) return string.char(tonumber(byte, 16)) end)
  local a, b = word(sealed, 1), word(sealed, 5)
  local text = mask(sealed:sub(9), a, b)
  local c, d = tag(text)
  if a ~= c or b ~= d then return nil end
  return text:match("^[^%z]*", 9), word(text, 1) % 2 ^ 32, word(text, 5) % 2 ^ 32
end

local function settings(handle)
  local context = handle:filterContext()
  return context:get("name"), context:get("path"), context:get("absolute"), context:get("idle")
end

local function received(headers, name, path)
  if path == "" then return headers:get(name) end
  for cookie in (headers:get("cookie") or ""):gmatch("[^;,%s]+") do
    if cookie:sub(1, #name + 1) == name .. "=" then return cookie:sub(#name + 2) end
  end
end

function envoy_on_request(handle)
  local name, path, absolute, idle = settings(handle)
  local headers, now = handle:headers(), os.time()
  headers:remove("HEADER")
  local address, created, seen = unseal(received(headers, name, path) or "")
  if not address or (absolute > 0 and now - created >= absolute) or (idle > 0 and now - seen >= idle) then return end
  headers:add("HEADER", address)
  local session = handle:streamInfo():dynamicMetadata()
  session:set("fairlead.session", "address", address)
  session:set("fairlead.session", "created", created)
  session:set("fairlead.session", "seen", seen)
end

function envoy_on_response(handle)
  local name, path, absolute, idle = settings(handle)
  local headers, now = handle:headers(), os.time()
  local address, created = headers:get("HEADER"), now
  headers:remove("HEADER")
  if not address then
    local session = handle:streamInfo():dynamicMetadata():get("fairlead.session")
    if not session or idle == 0 or session.seen >= now then return end
    address, created = session.address, session.created
  end
  local value = seal(address, created, now)
  if path == "" then
    headers:replace(name, value)
    return
  end
  local age = absolute > 0 and "; Max-Age=" .. absolute - (now - created) or ""
  headers:add("set-cookie", name .. "=" .. value .. age .. "; Path=" .. path .. "; HttpOnly")
end
"""


def _path(rule: Rule) -> str:
    """Return the path of a rule's cookies, so that rules that share a name do not overwrite each other's."""
    matches: tuple[RequestMatch, ...] = rule.matches or (RequestMatch(),)
    paths: set[PathMatch] = {match.path for match in matches}
    path = paths.pop() if len(paths) == 1 else PathMatch()
    value = prefix_of(path) if path.type == "PathPrefix" else path.value
    return value if path.type != "RegularExpression" and _COOKIE_PATH.fullmatch(value) else "/"


def _digest_of_rule(route: Route, rule: Rule) -> str:
    return _digest(route.name, rule.name, msgspec.json.encode(rule.matches))


def _digest(*parts: str | bytes) -> str:
    text = b"\0".join(part.encode() if isinstance(part, str) else part for part in parts)
    return blake2b(text, digest_size=4).hexdigest()
