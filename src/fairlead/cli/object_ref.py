"""KIND/NAME as the verbs take it."""

from __future__ import annotations

from fairlead.status.object_ref import (
    ANY,
    CLASS,
    IN_MEMBERS,
    KINDS,
    SERVICE,
    SHARING,
    ObjectRef,
    kinds_text,
    parse_object_ref,
)

__all__ = ["ANY", "CLASS", "IN_MEMBERS", "KINDS", "SERVICE", "SHARING", "ObjectRef", "kinds_text", "parse_object_ref"]
