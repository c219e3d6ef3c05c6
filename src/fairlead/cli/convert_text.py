"""Print a conversion: the objects as YAML for ``kubectl apply``, what is lost as comments before them.

In: converted Ingresses. Out: documents as plain values, and YAML. What comes from the input is escaped, so that no
comment becomes a line of its own.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from fairlead.api.meta import JSONObject
from fairlead.convert.accepted import body_of
from fairlead.convert.ingresses import ConvertedIngresses
from fairlead.convert.remarks import Remark
from fairlead.runtime.legible import legible

_WIDTH = 118


def bodies_of(conversion: ConvertedIngresses) -> list[JSONObject]:
    """Return the objects as an API server takes them."""
    return [body_of(resource, obj) for resource, obj in conversion.objects]


def yaml_of(conversion: ConvertedIngresses) -> str:
    """Return all documents, with the remarks before the first of them."""
    comments = "".join(f"{line}\n" for line in _comments(conversion.remarks))
    return comments + "".join(f"---\n{_dumped(body)}" for body in bodies_of(conversion))


def lines_of(remarks: Sequence[Remark]) -> list[str]:
    """Return what is said on stderr."""
    return [str(each) for each in remarks]


def _comments(remarks: Sequence[Remark]) -> Iterator[str]:
    for remark in remarks:
        yield from textwrap.wrap(
            legible(str(remark)), _WIDTH, initial_indent="# ", subsequent_indent="#   ", break_on_hyphens=False
        )


def _dumped(body: Any) -> str:
    return yaml.safe_dump(body, sort_keys=False, width=_WIDTH)
