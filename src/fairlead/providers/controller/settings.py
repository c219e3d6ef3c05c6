"""The parameters of a class whose provider is ``ingress`` or ``gateway``.

    controllerClass     the IngressClass or GatewayClass of the hub's cluster; necessary
    annotation.<key>    an annotation for each Ingress or Gateway that is made

Only a class may set them: they say who serves. In: a FrontendSpec. Out: settings, or ``BadConfiguration``. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from fairlead.errors import BadConfiguration
from fairlead.model.desired import FrontendSpec

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
            f"parameters.{unknown[0][:60]} of its class is unknown to provider {provider}; there are "
            f"{CONTROLLER_CLASS} and {ANNOTATION}<key>"
        )
    if not parameters.get(CONTROLLER_CLASS, ""):
        return (
            f"parameters.{CONTROLLER_CLASS} of its class is missing: name the class of the controller in "
            "the hub's cluster that is to serve it"
        )
    return ""
