"""Label and field selectors, which anyone who may list may write."""

from __future__ import annotations

from podless.failure import ApiFailure
from podless.selectors import Selection, parse_fields, parse_labels
from podless.store.entry import entry_of
from tests.fuzz.fuzz_harness import Target, plain

_ENTRY = entry_of({"metadata": {"name": "a", "namespace": "b", "labels": {"a": "1", "b": "9" * 60}}}, 1)
_FIELDS = frozenset({"metadata.name", "metadata.namespace", "status.phase"})


def _labels(raw: bytes) -> str:
    chosen = Selection(labels=parse_labels(raw.decode(errors="surrogateescape")))
    return f"{len(chosen.labels)} {chosen.matches(_ENTRY)}"


def _fields(raw: bytes) -> str:
    chosen = Selection(fields=parse_fields(raw.decode(errors="surrogateescape"), _FIELDS))
    return f"{len(chosen.fields)} {chosen.matches(_ENTRY)}"


TARGETS = (
    Target(
        "label-selectors",
        (b"a=b", b"a in (x, y),!c", b"a notin (x),d!=e,f", b"a>1,b<3", b"example.com/a==b", b"b>" + b"9" * 60),
        plain(_labels),
        refusals=(ApiFailure,),
        tokens=(b" in ", b" notin ", b"(", b")", b",", b"=", b"!=", b"!", b">", b"<", b"a", b"/", b"1"),
        max_bytes=65_536,
    ),
    Target(
        "field-selectors",
        (b"metadata.name=a", b"metadata.namespace!=b,status.phase==", b" metadata.name = a "),
        plain(_fields),
        refusals=(ApiFailure,),
        tokens=(b"metadata.name", b"status.phase", b"=", b"==", b"!=", b",", b" ", b" " * 1_000),
        max_bytes=65_536,
    ),
)
