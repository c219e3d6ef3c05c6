"""KIND/NAME as the verbs take it, and the option that completes it."""

from __future__ import annotations

from typing import Annotated

import typer

from fairlead.status.object_ref import CLASS, IN_MEMBERS, KINDS, SERVICE, ObjectRef, parse_object_ref

__all__ = ["CLASS", "IN_MEMBERS", "KINDS", "SERVICE", "Namespace", "ObjectRef", "parse_object_ref"]

Namespace = Annotated[str, typer.Option("--namespace", "-n", metavar="NS", help="Namespace of KIND/NAME.")]
