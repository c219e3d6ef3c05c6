"""Take every secret out of what goes into a support bundle.

In: objects as an API server sent them, and text such as a log. Out: the same without keys, tokens, passwords and
credentials in URLs; what was there is replaced by a word that says so. Never: a guess that something is harmless
because of the kind of its object: values are judged by their form, and names by what names of secrets look like.
"""

from __future__ import annotations

import re
from typing import Any, cast

from fairlead.api.kubernetes import LAST_APPLIED
from fairlead.api.meta import JSONObject
from fairlead.api.names import LABEL_MANAGED_BY, MANAGED_BY
from fairlead.doctor.reading import mapping

REMOVED = "(removed)"

_SECRET_NAME = re.compile(
    r"(?i)(pass(word|wd|phrase)?|secret|token|api[-_]?key|private[-_]?key|access[-_]?key|credential|auth(orization|"
    r"entication)?|cookie|bearer|session[-_]?id|signature|client[-_]?key|kubeconfig)"
)
#: Fields of the API whose names look like those of secrets and that hold a name, a number or a switch.
_HARMLESS = frozenset(
    {
        "secretName", "secretRef", "secretKeyRef", "tokenExpirationSeconds", "automountServiceAccountToken",
        "imagePullSecrets", "sessionAffinity", "sessionAffinityConfig", "certificateRefs", "expirationSeconds",
        "sessionPersistence", "passThrough", "externalAuth", "resources", "verbs",
    }
)  # fmt: skip
#: Each begins where it can begin only once in a long word, so that no text takes longer than its length.
_IN_TEXT: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(-----END [A-Z0-9 ]*PRIVATE KEY-----|\Z)", re.DOTALL),
        REMOVED,
    ),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){1,4}"), REMOVED),
    (re.compile(r"(?i)\b(bearer|basic|digest|negotiate)\s+[A-Za-z0-9._~+/=-]{6,}"), rf"\1 {REMOVED}"),
    (re.compile(r"(?<=://)[^/@\s\"']+@"), f"{REMOVED}@"),
    (
        re.compile(
            r"(?i)((?<![\w-])[\w-]{0,64}?(?:pass(?:word|wd|phrase)?|secret|token|api[-_]?key|private[-_]?key|access[-_]?key|credentials?"
            r"|authorization|cookie|signature)[\w-]*[\"']?\s*[=:]\s*)(\"[^\"]*\"|'[^']*'|[^\s,;&\"'}\]]+)"
        ),
        rf"\1{REMOVED}",
    ),
    # An option of a command and its value, as words or as neighbours in a list.
    (
        re.compile(
            r"(?i)((?<![\w-])--?[\w-]{0,64}?(?:pass(?:word|wd|phrase)?|secret|token|api[-_]?key|private[-_]?key"
            r"|access[-_]?key|credentials?)(?:[\"'],)?[ \t]+)(?!--?[a-z])(\"[^\"]*\"|'[^']*'|[^\s,;&\"'}\]]+)"
        ),
        rf"\1{REMOVED}",
    ),
    # The value of a header that a directive of a proxy sets, which may be anything, whatever the header is called.
    (
        re.compile(
            r"(?i)(\b(?:(?:proxy|grpc|uwsgi|auth)_set_header|add_header|fastcgi_param|(?:set|add|replace)-header)[ \t]+"
            r"[^\s;]{1,256}[ \t]+)(\"[^\"]*\"|'[^']*'|[^;\r\n]+)"
        ),
        rf"\1{REMOVED}",
    ),
    # A header or variable by a name like those of secrets, and its value after it.
    (
        re.compile(
            r"(?i)((?<![\w$-])(?:x-|\$)[\w-]{0,64}?(?:pass(?:word|wd|phrase)?|secret|token|key|credentials?|auth|cookie"
            r"|signature)[\w-]{0,64}[ \t]+)(\"[^\"]*\"|'[^']*'|[^\s,;&\"'}\]]+)"
        ),
        rf"\1{REMOVED}",
    ),
    # Keys that encode bytes: long runs of base64 with both cases and a digit, which no name of Kubernetes is.
    (re.compile(r"(?<![A-Za-z0-9+/_=-])(?=[A-Za-z0-9+/_-]*[a-z])(?=[A-Za-z0-9+/_-]*[A-Z])(?=[A-Za-z0-9+/_-]*[0-9])"
                r"[A-Za-z0-9+/_-]{40,}={0,2}(?![A-Za-z0-9+/_=-])"), REMOVED),
)  # fmt: skip
#: An argument of a command whose value is the next one.
_OPTION = re.compile(
    r"(?i)--?[\w-]{0,64}?(pass(word|wd|phrase)?|secret|token|api[-_]?key|private[-_]?key|access[-_]?key|credentials?)"
)
#: Values of annotations are kept where Kubernetes or Fairlead says what they are; those of others may be anything, such
#: as a piece of configuration in nginx.ingress.kubernetes.io/server-snippet.
_KNOWN_ANNOTATION = re.compile(
    r"^(?!([a-z0-9.-]+\.)?ingress\.kubernetes\.io/)([a-z0-9.-]+\.)?(fairlead\.dev|kubernetes\.io|k8s\.io|openyurt\.io)/"
)
#: A whole object as it was applied, with whatever was in it.
_CONTENT = ("data", "stringData", "binaryData")


def redacted_object(obj: JSONObject) -> JSONObject:
    """Return an object without secrets and without managedFields.

    Kept of data (Secret, ConfigMap) are only the names of its keys, unless it is a ConfigMap of Fairlead's own; kept of
    annotations of others are only their names.
    """
    metadata = {key: value for key, value in mapping(obj.get("metadata")).items() if key != "managedFields"}
    own = obj.get("kind") == "ConfigMap" and mapping(metadata.get("labels")).get(LABEL_MANAGED_BY) == MANAGED_BY
    kept = {key: value for key, value in obj.items() if key not in _CONTENT or own}
    for field in _CONTENT:
        if not own and obj.get(field):
            kept[field] = dict.fromkeys(mapping(obj[field]), REMOVED)
    if metadata.get("annotations"):
        annotations = mapping(metadata["annotations"])
        metadata["annotations"] = {key: _annotation(key, value) for key, value in annotations.items()}
    return cast("JSONObject", _value({**kept, "metadata": metadata}))


def _annotation(key: str, value: Any) -> Any:
    return value if _KNOWN_ANNOTATION.match(key) and key != LAST_APPLIED else REMOVED


def redacted_text(text: str) -> str:
    """Return text without what looks like a key, a token, a password, or credentials in a URL."""
    for pattern, instead in _IN_TEXT:
        text = pattern.sub(instead, text)
    return text


def _value(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        return _mapping(cast("JSONObject", value))
    if isinstance(value, list):
        elements = cast("list[Any]", value)
        options = [False, *(isinstance(each, str) and _OPTION.fullmatch(each) is not None for each in elements)]
        return [
            REMOVED if of_option and isinstance(each, str) else _value(each, name)
            for each, of_option in zip(elements, options, strict=False)
        ]
    if name not in _HARMLESS and _SECRET_NAME.search(name) and value not in (None, "", True, False):
        return REMOVED
    return redacted_text(value) if isinstance(value, str) else value


def _mapping(obj: JSONObject) -> JSONObject:
    """Return a mapping; one with a ``name`` and a ``value`` is a variable of an environment, or a header."""
    if isinstance(obj.get("name"), str) and isinstance(obj.get("value"), str):
        obj = {**obj, "value": REMOVED}
    return {key: _value(value, key) for key, value in obj.items()}
