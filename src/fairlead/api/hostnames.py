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
#: RFC 1123 names whose last label is no number: resolvers take "127.1" and "0x7f.1" for addresses.
RESOLVABLE_NAME = re.compile(r"(?=.{1,253}\Z)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def host_problem(text: str, *, wildcard: bool = False) -> str:
    """Return why ``text`` is no DNS name and what to write instead, empty when it is one.

    ``wildcard``: its first label may be an asterisk.
    """
    if not text:
        return "it is empty: write a DNS name such as shop.example.com"
    if not text.isascii():
        encoded = _a_labels(text)
        hint = f"write it as {encoded}" if encoded else "write its A-label, which begins with xn--"
        return f"it has letters that DNS has not: {hint}"
    name = text.removeprefix(WILDCARD) if wildcard else text
    if text != text.lower():
        return f"it has capital letters: write {text.lower()}"
    if text.endswith("."):
        return f"it ends with a dot: write {text.rstrip('.')}"
    if len(text) > MAX_NAME:
        return f"it has {len(text)} characters, and DNS allows {MAX_NAME}: shorten it"
    if "*" in name:
        return "an asterisk stands for the whole first label only, as in *.example.com" if wildcard else (
            "it has an asterisk: write a name without one"
        )  # fmt: skip
    for label in name.split("."):
        if len(label) > MAX_LABEL:
            return f"its label {label[:20]}... has {len(label)} characters, and DNS allows {MAX_LABEL}: shorten it"
        if not _LABEL.fullmatch(label):
            return f"its label {label!r} is none: labels are letters, digits and hyphens, with a hyphen at neither end"
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
