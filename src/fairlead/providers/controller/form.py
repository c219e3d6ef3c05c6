"""The two forms of a load balancer for another controller, Ingress and Gateway: their interface and their settings.

    controllerClass     the IngressClass or GatewayClass of the hub's cluster; required
    annotation.<key>    an annotation for each Ingress or Gateway that the hub makes

Only a class may set these parameters, because they say who serves. A form makes objects of a FrontendSpec, and reads
the status of the load balancer from them. Pure; a wrong parameter is a ``BadConfiguration``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from fairlead.api.meta import AnyResource, KubeObject
from fairlead.api.names import ANNOTATION_ROUTE_FIGURES
from fairlead.errors import BadConfiguration
from fairlead.model.desired import FrontendSpec
from fairlead.model.http import L7Config
from fairlead.model.keys import Protocol as TransportProtocol
from fairlead.model.observed import RefusedPart
from fairlead.providers.controller.objects import Rendered

_LONGEST_NAME = 253


class FormAnswer(msgspec.Struct, frozen=True):
    """The controller's answer for one object: its addresses, and why it does not serve yet (empty when it does)."""

    addresses: tuple[str, ...] = ()
    waiting: str = ""


class ControllerForm(Protocol):
    """A form. ``answering`` is the kind whose status has the address; ``others`` are created with it.

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

    def answer(self, obj: KubeObject) -> FormAnswer:
        """Return what the status of an object of a kind in ``reporting`` says."""
        ...


def unrendered_parts(config: L7Config) -> list[RefusedPart]:
    """Return as refused what no form has an object for: fixed answers, and figures of routes."""
    reason = "another controller cannot serve fixed answers; prove the name with DNS-01"
    refused = [
        RefusedPart("answer", f"{answer.hostname}{answer.path}"[:_LONGEST_NAME], reason) for answer in config.answers
    ]
    if config.route_figures:
        reason = "another controller does not report the requests of each route; remove the annotation"
        refused.append(RefusedPart("annotation", ANNOTATION_ROUTE_FIGURES, reason))
    return refused


CONTROLLER_CLASS = "controllerClass"
ANNOTATION = "annotation."


class ControllerSettings(msgspec.Struct, frozen=True):
    """The class of the controller, and the annotations that objects get."""

    controller_class: str
    annotations: Mapping[str, str] = {}


def settings_from_spec(spec: FrontendSpec, *, provider: str) -> ControllerSettings:
    """Return the settings of one load balancer.

    Raises:
        BadConfiguration: controllerClass is missing, or there is a parameter that has no effect.
    """
    if problem := class_problem(spec.parameters, provider=provider):
        raise BadConfiguration(f"{spec.key}: {problem}")
    if spec.l7 is None:
        raise BadConfiguration(
            f"{spec.key}: a class with provider {provider} serves Ingresses and Gateways only; use another "
            "LoadBalancerClass for Services"
        )
    annotations = {
        name.removeprefix(ANNOTATION): value for name, value in spec.parameters.items() if name.startswith(ANNOTATION)
    }
    return ControllerSettings(spec.parameters[CONTROLLER_CLASS], annotations)


def class_problem(parameters: Mapping[str, str], *, provider: str) -> str:
    """Return what is wrong with the parameters of a class, empty when nothing is."""
    unknown = sorted(name for name in parameters if name != CONTROLLER_CLASS and not name.startswith(ANNOTATION))
    if unknown:
        return (
            f"parameters.{unknown[0][:60]} of its class is unknown to provider {provider}; valid are "
            f"{CONTROLLER_CLASS} and {ANNOTATION}<key>"
        )
    if not parameters.get(CONTROLLER_CLASS, ""):
        return (
            f"parameters.{CONTROLLER_CLASS} of its class is missing: name the class of the controller in "
            "the hub's cluster that is to serve it"
        )
    return ""
