"""The interface of the two forms, Ingress and Gateway: objects for a load balancer, and its status read from them."""

from __future__ import annotations

from typing import Protocol

import msgspec

from fairlead.api.meta import AnyResource, KubeObject
from fairlead.api.names import ANNOTATION_ROUTE_FIGURES
from fairlead.model.desired import FrontendSpec
from fairlead.model.http import L7Config
from fairlead.model.keys import Protocol as TransportProtocol
from fairlead.model.observed import RefusedPart
from fairlead.providers.controller.objects import Rendered
from fairlead.providers.controller.settings import ControllerSettings

_LONGEST_NAME = 253


class Answer(msgspec.Struct, frozen=True):
    """The controller's answer for one object: its addresses, and why it does not serve yet (empty when it does)."""

    addresses: tuple[str, ...] = ()
    waiting: str = ""


class Form(Protocol):
    """A form. ``answering`` is the kind whose status has the address; ``others`` are made beside it.

    ``reporting`` are the kinds whose status says whether they serve.
    """

    name: str
    protocols: frozenset[TransportProtocol]
    answering: AnyResource
    reporting: tuple[AnyResource, ...]
    others: tuple[AnyResource, ...]

    def render(self, spec: FrontendSpec, settings: ControllerSettings) -> Rendered:
        """Return the objects that say what ``spec`` is; the Services of its backends are made apart."""
        ...

    def answer(self, obj: KubeObject) -> Answer:
        """Return what the status of an object of a kind in ``reporting`` says."""
        ...


def unrendered_parts(config: L7Config) -> list[RefusedPart]:
    """Return as refused what no form has an object for: fixed answers, and figures of routes."""
    reason = "another controller cannot give it; prove the name with DNS-01"
    refused = [RefusedPart("answer", f"{each.hostname}{each.path}"[:_LONGEST_NAME], reason) for each in config.answers]
    if config.route_figures:
        reason = "another controller does not report the requests of each route; remove the annotation"
        refused.append(RefusedPart("annotation", ANNOTATION_ROUTE_FIGURES, reason))
    return refused
