"""The refusals of an API server with Gateway API installed, for one object and without a server.

In: an object as a client writes it. Out: causes, as kube-apiserver reports them; empty when the object is accepted.
The definitions are those of ``schema/gateway.json``: the experimental channel, which has all that the standard one has.
"""

from __future__ import annotations

import contextlib
from functools import cache
from pathlib import Path
from typing import cast

from podless.failure import Cause, Causes, EnoughCauses
from podless.kinds.crd import kinds_of
from podless.kinds.kind import Kind
from podless.objects import Obj, clone, decode
from podless.registry.admission import collect_causes
from podless.registry.context import Context
from podless.schema.builtin import BuiltinSchemas
from podless.schema.prune import fill_defaults, prune
from podless.schema.rules import Rules


def gateway_definitions(*kinds: str) -> list[Obj]:
    """Return the CustomResourceDefinitions of Gateway API: those of ``kinds``, such as "Gateway", or all."""
    definitions = cast("list[Obj]", decode((Path(__file__).parent / "schema" / "gateway.json").read_bytes()))
    return [crd for crd in definitions if not kinds or crd["spec"]["names"]["kind"] in kinds]


@cache
def _kinds() -> dict[tuple[str, str], Kind]:
    schemas = BuiltinSchemas()
    kinds = [kind for crd in gateway_definitions() for kind in kinds_of(crd, schemas)]
    return {(kind.api_version, kind.kind): kind for kind in kinds}


@cache
def _rules() -> Rules:
    return Rules()


def refusals(obj: Obj) -> list[Cause]:
    """Return why a new object is refused; a field that its kind does not have is a cause, as with kubectl.

    Raises:
        KeyError: its kind is not one of Gateway API.
    """
    kind = _kinds()[obj["apiVersion"], obj["kind"]]
    body = cast("Obj", clone(obj))
    unknown: list[str] = []
    prune(body, kind.node, "", unknown, drop_nulls=False)
    fill_defaults(body, kind.node)
    causes = Causes()
    with contextlib.suppress(EnoughCauses):
        causes += [Cause("FieldValueInvalid", "unknown field", path) for path in unknown]
        collect_causes(body, None, kind, causes, context=Context(), rules=_rules())
    return causes
