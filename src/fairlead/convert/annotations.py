"""The annotations of ingress-nginx, what each is converted to, and the remarks about a conversion.

    READ            converted; by ``nginx``, ``routes`` and ``listeners``
    LOST            has an effect on requests that Gateway API cannot express: the reason, and what to do instead
    PROTECTING      the part that keeps requests out: without it more clients get in
    WITHOUT_EFFECT  tunes nginx itself: dropped, and nothing is lost

Source: https://kubernetes.github.io/ingress-nginx/user-guide/nginx-configuration/annotations/
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

import msgspec

from fairlead.api.kubernetes import ANNOTATION_LEGACY_CLASS, IngressObject
from fairlead.api.names import (
    ANNOTATION_ACCESS_LOG,
    ANNOTATION_ALLOWED_SOURCES,
    ANNOTATION_BACKEND_TLS,
    ANNOTATION_CERTIFICATE_ISSUER,
    ANNOTATION_DENIED_SOURCES,
    ANNOTATION_EXTERNAL_AUTH,
    ANNOTATION_EXTERNAL_PROCESSOR,
    ANNOTATION_IGNORED_ANNOTATIONS,
    ANNOTATION_JWT,
    ANNOTATION_REQUESTS_PER_SECOND,
    ANNOTATION_TRACING,
    GROUP,
)
from fairlead.model.in_words import whole_number

PREFIX = "nginx.ingress.kubernetes.io/"

READ = frozenset(
    {
        "app-root", "backend-protocol", "canary", "canary-by-cookie", "canary-by-header", "canary-by-header-pattern",
        "canary-by-header-value", "canary-weight", "canary-weight-total", "affinity", "affinity-mode",
        "cors-allow-credentials", "cors-allow-headers", "cors-allow-methods", "cors-allow-origin",
        "cors-expose-headers", "cors-max-age", "enable-cors", "force-ssl-redirect", "from-to-www-redirect",
        "permanent-redirect", "permanent-redirect-code", "proxy-next-upstream", "proxy-next-upstream-tries",
        "proxy-ssl-name", "proxy-ssl-secret", "proxy-ssl-verify", "rewrite-target", "server-alias",
        "session-cookie-expires", "session-cookie-max-age", "session-cookie-name", "ssl-passthrough", "ssl-redirect",
        "temporal-redirect", "temporal-redirect-code", "upstream-vhost", "use-regex", "x-forwarded-prefix",
        "whitelist-source-range", "allowlist-source-range", "denylist-source-range",
    }
)  # fmt: skip

_AUTH = (
    "name a service in an ExternalAuth filter of the HTTPRoute (experimental channel), or use a proxy for it in front "
    "of the backend"
)
_CLIENT = (
    "client certificates are asked for by the whole Gateway: set spec.tls.frontend with a ConfigMap of the authority"
)
_LIMIT = "Gateway API has no limits of rates or connections"
#: The annotations of ingress-nginx that become one of ours.
SOURCE_RANGES: Mapping[str, tuple[str, ...]] = {
    ANNOTATION_ALLOWED_SOURCES: ("whitelist-source-range", "allowlist-source-range"),
    ANNOTATION_DENIED_SOURCES: ("denylist-source-range",),
}
#: The annotations of ingress-nginx that keep requests out, by that of ours which takes their place.
_REPLACED: Mapping[str, Collection[str]] = {
    **SOURCE_RANGES,
    ANNOTATION_EXTERNAL_AUTH: [
        f"auth-{name}"
        for name in (
            "url", "signin", "method", "signin-redirect-param", "response-headers", "proxy-set-headers", "cache-key",
            "cache-duration", "request-redirect", "always-set-cookie", "keepalive",
        )
    ],
    ANNOTATION_EXTERNAL_PROCESSOR: ("enable-modsecurity", "enable-owasp-core-rules"),
}  # fmt: skip
#: Our annotations that mean the same on an Ingress and on a route.
_OF_ROUTES = (
    ANNOTATION_ACCESS_LOG,
    ANNOTATION_ALLOWED_SOURCES,
    ANNOTATION_DENIED_SOURCES,
    ANNOTATION_EXTERNAL_PROCESSOR,
    ANNOTATION_JWT,
    ANNOTATION_REQUESTS_PER_SECOND,
    ANNOTATION_TRACING,
)
_OF_OTHER_OBJECTS = {
    ANNOTATION_BACKEND_TLS: "write a BackendTLSPolicy for the Services",
    ANNOTATION_CERTIFICATE_ISSUER: "set it on the Gateway",
    ANNOTATION_EXTERNAL_AUTH: "add a filter ExternalAuth to each rule of the routes",
}
_SNIPPET = "a piece of nginx's own configuration has no equal; say what it does with filters"
_TIMEOUT = (
    "nginx counts between two reads or writes, Gateway API the whole request: set timeouts.request if you want it"
)
_COOKIE = "the attributes of the session cookie cannot be set"

LOST: Mapping[str, str] = {
    **dict.fromkeys(
        ("auth-type", "auth-secret", "auth-secret-type", "auth-realm", "auth-url", "auth-signin", "auth-method",
         "auth-signin-redirect-param", "auth-snippet", "auth-response-headers", "auth-proxy-set-headers",
         "auth-cache-key", "auth-cache-duration", "auth-request-redirect", "auth-always-set-cookie",
         "auth-keepalive", "enable-global-auth", "satisfy"),
        _AUTH,
    ),
    **dict.fromkeys(
        ("auth-tls-secret", "auth-tls-verify-client", "auth-tls-verify-depth", "auth-tls-error-page",
         "auth-tls-pass-certificate-to-upstream", "auth-tls-match-cn"),
        _CLIENT,
    ),
    **dict.fromkeys(
        ("limit-connections", "limit-rps", "limit-rpm", "limit-rate", "limit-rate-after", "limit-burst-multiplier",
         "limit-whitelist", "global-rate-limit", "global-rate-limit-window", "global-rate-limit-key",
         "global-rate-limit-ignored-cidrs", "limit-allowlist"),
        _LIMIT,
    ),
    **dict.fromkeys(
        ("configuration-snippet", "server-snippet", "stream-snippet", "modsecurity-snippet"), _SNIPPET
    ),
    **dict.fromkeys(("proxy-read-timeout", "proxy-send-timeout"), _TIMEOUT),
    **dict.fromkeys(
        ("session-cookie-path", "session-cookie-domain", "session-cookie-samesite", "session-cookie-secure",
         "session-cookie-change-on-failure", "session-cookie-conditional-samesite-none", "affinity-canary-behavior"),
        _COOKIE,
    ),
    "custom-headers": "the annotation names a ConfigMap: write the headers as a ResponseHeaderModifier",
    "custom-http-errors": "error pages of backends cannot be replaced",
    "default-backend": "Gateway API has no default backend for errors; without endpoints the answer is 503",
    "mirror-target": "the value is a URL: write a RequestMirror filter that names a Service",
    "mirror-host": "a copy of a request keeps its Host header",
    "mirror-request-body": "a copy of a request always has its body",
    "upstream-hash-by": "Gateway API has no hashing; sessionPersistence keeps the requests of a session together",
    "upstream-fail-timeout": "set annotation fairlead.dev/outlier-detection on the Service",
    "upstream-max-fails": "set annotation fairlead.dev/outlier-detection on the Service",
    "proxy-body-size": "the size of a request's body is not limited",
    "proxy-redirect-from": "Location headers of backends are not rewritten",
    "proxy-redirect-to": "Location headers of backends are not rewritten",
    "proxy-cookie-domain": "cookies of backends are not rewritten",
    "proxy-cookie-path": "cookies of backends are not rewritten",
    "proxy-next-upstream-timeout": "the time for all tries is timeouts.request",
    "enable-modsecurity": "Gateway API has no firewall for requests",
    "enable-owasp-core-rules": "Gateway API has no firewall for requests",
    "preserve-trailing-slash": "redirects keep the path as it is",
    "rewrite-log": _SNIPPET,
}  # fmt: skip

PROTECTING = frozenset(
    name
    for name, reason in LOST.items()
    if reason in {_AUTH, _CLIENT} or name in {"enable-modsecurity", "enable-owasp-core-rules"}
).union(*SOURCE_RANGES.values())
#: The directives by which a snippet keeps requests out.
_PROTECTING_SNIPPET = re.compile(r"\b(?:allow|deny|auth_\w+|satisfy|access_by_lua\w*|valid_referers|return\s+4\d\d)\b")
#: What strconv.ParseBool of Go takes.
_FLAGS = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}
_ADMITTING = frozenset({"whitelist-source-range", "allowlist-source-range"})
_ALL_ADDRESSES = frozenset({"0.0.0.0/0", "::/0"})
_OFF = frozenset({"", "false", "off", "0", "f"})

WITHOUT_EFFECT = frozenset(
    {
        "client-body-buffer-size", "client-header-buffer-size", "connection-proxy-header", "enable-access-log",
        "enable-opentelemetry", "enable-opentracing", "enable-rewrite-log", "http2-push-preload", "load-balance",
        "modsecurity-transaction-id", "opentelemetry-trust-incoming-span", "opentelemetry-operation-name",
        "proxy-buffer-size", "proxy-buffering", "proxy-buffers-number", "proxy-busy-buffers-size",
        "proxy-connect-timeout", "proxy-http-version", "proxy-max-temp-file-size", "proxy-request-buffering",
        "proxy-ssl-ciphers", "proxy-ssl-protocols", "proxy-ssl-server-name", "proxy-ssl-verify-depth",
        "service-upstream", "ssl-ciphers", "ssl-prefer-server-ciphers", "opentracing-trust-incoming-span",
    }
)  # fmt: skip


def by_name(annotations: Mapping[str, str] | None) -> dict[str, str]:
    """Return the annotations of ingress-nginx by their short names, in order."""
    present = sorted((annotations or {}).items())
    return {key.removeprefix(PREFIX): value.strip() for key, value in present if key.startswith(PREFIX)}


#: What controllers other than ingress-nginx call it; the last three name objects which may keep requests out.
_PROTECTING_ELSEWHERE = frozenset(
    {
        "allow-list", "app-protect-enable", "basic-auth-secret", "blacklist", "deny-list", "inbound-cidrs", "jwt-key",
        "mutual-authentication", "oauth", "waf", "waf-acl-id", "waf-policy-for-path", "wafv2-acl-arn", "whitelist",
        "plugins", "policies", "router.middlewares",
    }
)  # fmt: skip
#: Domains of controllers whose annotations are on Ingresses; a domain with a label ``ingress`` is one, too.
_CONTROLLERS = re.compile(
    r"(?:.*\.)?(?:ingress(?:\..+)?|haproxy(?:-ingress.*|\.(?:org|com))|nginx\.(?:org|com)|f5\.com|konghq\.com"
    r"|projectcontour\.io|getambassador\.io|istio\.io|traefik\.io|zalando\.org|cloud\.google\.com|networking\.gke\.io)"
)
_EXTERNAL_DNS = re.compile(r"external-dns\..+/(?!target$).+")
_OF_THE_GATEWAY = re.compile(r"(?:.*\.)?cert-manager\.io/.+|kubernetes\.io/tls-acme|external-dns\..+/target")


def protecting_any(annotations: Mapping[str, str] | None) -> tuple[str, ...]:
    """Return the annotations that keep requests out, whichever controller reads them: many share the names of nginx.

    Those of ingress-nginx have their short names, others their whole keys.
    """
    names: list[str] = []
    for key, value in sorted((annotations or {}).items()):
        prefix, _, name = key.rpartition("/")
        if not prefix or prefix == GROUP:
            continue
        if protecting({name: value.strip()}) or (name in _PROTECTING_ELSEWHERE and not admits_all(name, value)):
            names.append(key.removeprefix(PREFIX))
    return tuple(names)


def protecting(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """Return the short names of those that keep requests out; one that is switched off, or admits all, does not."""
    return tuple(
        name
        for name, value in annotations.items()
        if (name in PROTECTING and value.lower() not in _OFF and not admits_all(name, value))
        or (name.endswith("-snippet") and _PROTECTING_SNIPPET.search(value))
    )


def ignorable(ingress: IngressObject) -> set[str]:
    """Return the annotations of other controllers that may be ignored; those of ingress-nginx by their short names.

    The user says so, or one of ours takes their place.
    """
    present = ingress.metadata.annotations or {}
    names = {part.strip().removeprefix(PREFIX) for part in present.get(ANNOTATION_IGNORED_ANNOTATIONS, "").split(",")}
    return names.union(*(others for own, others in _REPLACED.items() if own in present))


def unconverted_protections(ingress: IngressObject) -> list[str]:
    """Return the annotations that keep requests out, are not converted, and may not be ignored."""
    present = ingress.metadata.annotations or {}
    converted = {name for names in SOURCE_RANGES.values() for name in names} | ignorable(ingress)
    names = [
        name
        for name in protecting_any(present)
        if "/" not in name or present.get(f"{PREFIX}{name.rpartition('/')[2]}") != present[name]
    ]
    return [name for name in (*names, *({ANNOTATION_EXTERNAL_AUTH} & present.keys())) if name not in converted]


def admits_all(name: str, value: str) -> bool:
    """Return whether these source ranges are all addresses, as on the Ingresses of cert-manager's solvers."""
    return name in _ADMITTING and {part.strip() for part in value.split(",")} >= _ALL_ADDRESSES


def nginx_annotations(ingress: IngressObject, remarks: Remarks) -> dict[str, str]:
    """Return the annotations of ingress-nginx that are converted, by their short names; note what becomes of others."""
    read: dict[str, str] = {}
    for name, value in by_name(ingress.metadata.annotations).items():
        if name in READ:
            read[name] = value
        elif name in WITHOUT_EFFECT:
            remarks.note(ingress, name, "only tunes nginx; dropped")
        elif name in LOST and value.lower() in _OFF:
            remarks.note(ingress, name, "is switched off; dropped")
        else:
            remarks.lost(ingress, name, LOST.get(name, "this version does not know the annotation"))
    return read


def own_annotations(ingress: IngressObject, remarks: Remarks) -> dict[str, str]:
    """Return the annotations that a route takes over from an Ingress; note which others must become something else."""
    kept: dict[str, str] = {}
    for key, value in sorted((ingress.metadata.annotations or {}).items()):
        if key in _OF_ROUTES or _EXTERNAL_DNS.fullmatch(key):
            kept[key] = value
        elif key in _OF_OTHER_OBJECTS:
            remarks.lost(ingress, key, _OF_OTHER_OBJECTS[key])
        elif _OF_THE_GATEWAY.fullmatch(key):
            remarks.lost(ingress, key, "set the annotation on the Gateway: the controller that reads it ignores routes")
    for key in of_other_controllers(ingress.metadata.annotations):
        remarks.lost(ingress, key, "belongs to another controller than ingress-nginx, and is not converted")
    return kept


def of_other_controllers(annotations: Mapping[str, str] | None) -> tuple[str, ...]:
    """Return the annotations by which controllers other than ingress-nginx change how an Ingress is served.

    Charts write some for several controllers; one that ingress-nginx has with the same value is not listed.
    """
    present = annotations or {}
    return tuple(
        key
        for key in sorted(present)
        if present.get(f"{PREFIX}{key.rpartition('/')[2]}") != present[key]
        and (_CONTROLLERS.fullmatch(key.partition("/")[0]) or key.startswith("kubernetes.io/ingress."))
        and key != ANNOTATION_LEGACY_CLASS
    )


def number_of(ingress: IngressObject, annotations: Mapping[str, str], name: str, default: int, remarks: Remarks) -> int:
    """Return the number in the annotation ``name``, else ``default``; one that cannot be read is noted as lost."""
    text = annotations.get(name, "")
    number = whole_number(text)
    if text and number is None:
        remarks.lost(ingress, name, f"{text[:40]!r} is not a number: {default} is used")
    return default if number is None else number


def flag_of(annotations: Mapping[str, str], name: str, *, default: bool = False) -> bool:
    """Return the flag in the annotation ``name`` as Go reads it; ``default``, as in nginx, where it is not one."""
    return _FLAGS.get(annotations.get(name, ""), default)


class Remark(msgspec.Struct, frozen=True):
    """One sentence about one Ingress; ``lost``: the converted objects do not do what the Ingress did."""

    ingress: str
    what: str
    message: str
    lost: bool

    def __str__(self) -> str:
        kind = "lost" if self.lost else "note"
        return f"{kind}: Ingress {self.ingress}: {self.what}: {self.message}"


class Remarks:
    """Collects remarks; each is there once."""

    def __init__(self) -> None:
        self._noted: dict[Remark, None] = {}

    def lost(self, ingress: IngressObject, what: str, message: str) -> None:
        """Note that something is not converted."""
        self._noted[Remark(str(ingress.key), what, message, lost=True)] = None

    def note(self, ingress: IngressObject, what: str, message: str) -> None:
        """Note something to look at, or to do by hand, where nothing is lost."""
        self._noted[Remark(str(ingress.key), what, message, lost=False)] = None

    def all(self) -> tuple[Remark, ...]:
        """Return all of them: what is lost first."""
        return tuple(sorted(self._noted, key=lambda remark: not remark.lost))
