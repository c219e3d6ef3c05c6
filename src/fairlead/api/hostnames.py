"""DNS names: their validation, and the wildcards that cover a name.

In: texts that users wrote. Out: a sentence about what is wrong and the next step, or the relations between names. All
names are in lower case and without a final dot. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

MAX_NAME = 253
MAX_LABEL = 63
WILDCARD = "*."
#: What CEL rules and schemas take for a domain: labels of letters, digits and hyphens.
DOMAIN_PATTERN = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?([.][a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$"
#: RFC 1123 names whose last label is not a number: resolvers take "127.1" and "0x7f.1" for addresses.
RESOLVABLE_NAME = re.compile(r"(?=.{1,253}\Z)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def host_problem(text: str, *, wildcard: bool = False) -> str:
    """Return why ``text`` is not a DNS name and what to write instead; empty when it is valid.

    ``wildcard``: its first label may be an asterisk.
    """
    if not text:
        return "empty: write a DNS name such as shop.example.com"
    if not text.isascii():
        encoded = _a_labels(text)
        hint = f"write it as {encoded}" if encoded else "write its A-label, which begins with xn--"
        return f"contains characters that are not allowed in DNS: {hint}"
    name = text.removeprefix(WILDCARD) if wildcard else text
    if text != text.lower():
        return f"contains capital letters: write {text.lower()}"
    if text.endswith("."):
        return f"ends with a dot: write {text.rstrip('.')}"
    if len(text) > MAX_NAME:
        return f"has {len(text)} characters, and DNS allows {MAX_NAME}: shorten the name"
    if "*" in name:
        return "an asterisk can only be the whole first label, as in *.example.com" if wildcard else (
            "contains an asterisk: write a name without one"
        )  # fmt: skip
    for label in name.split("."):
        if len(label) > MAX_LABEL:
            return f"label {label[:20]}... has {len(label)} characters, and DNS allows {MAX_LABEL}: shorten the label"
        if not _LABEL.fullmatch(label):
            return f"label {label!r} is invalid: use letters, digits and hyphens, and no hyphen at either end"
    return ""


def is_within(name: str, domain: str) -> bool:
    """Return whether ``name`` is ``domain`` or below it; of a wildcard, what follows the asterisk counts."""
    name, domain = name.removeprefix(WILDCARD).lower(), domain.removeprefix(WILDCARD).lower()
    return name == domain or name.endswith(f".{domain}")


def wildcards_over(name: str) -> Iterator[str]:
    """Yield the wildcards that ``name`` is below, the nearest first; a wildcard is not below itself."""
    rest = name.removeprefix(WILDCARD)
    while "." in rest:
        rest = rest.partition(".")[2]
        yield f"{WILDCARD}{rest}"


def _a_labels(text: str) -> str:
    try:
        return text.lower().encode("idna").decode()
    except UnicodeError:
        return ""
