"""The limit of requests per second of an Ingress or route, from its annotation.

In: an object with its annotations. Out: rules with the limit, and a sentence where the annotation is no number: then
there is no limit. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from fairlead.api.meta import KubeObject
from fairlead.api.names import ANNOTATION_REQUESTS_PER_SECOND
from fairlead.model.http import Rule
from fairlead.model.in_words import whole_number

_MOST = 10_000_000


def limited(rules: Iterable[Rule], of: KubeObject) -> tuple[Rule, ...]:
    """Return ``rules`` with the limit that ``of`` asks for."""
    limit = whole_number(of.annotation(ANNOTATION_REQUESTS_PER_SECOND), least=1, most=_MOST)
    if limit is None:
        return tuple(rules)
    return tuple(msgspec.structs.replace(rule, requests_per_second=limit) for rule in rules)


def limit_problem(of: KubeObject) -> str:
    """Return what is wrong with the annotation of ``of``; empty when nothing is."""
    text = of.annotation(ANNOTATION_REQUESTS_PER_SECOND)
    if not text or whole_number(text, least=1, most=_MOST) is not None:
        return ""
    name = ANNOTATION_REQUESTS_PER_SECOND
    return f"annotation {name} is {text[:40]!r}, so there is no limit: give a number from 1 to {_MOST}"
