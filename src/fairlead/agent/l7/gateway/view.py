"""All that the translation of one Gateway may depend on, and which other objects it names.

In: a Gateway or ListenerSet. Out: the Secrets and ConfigMaps that it names, whether or not it may. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from fairlead.agent.l7.certificates import CertificateState
from fairlead.agent.l7.gateway.references import CONFIG_MAP, CORE_GROUP, SECRET
from fairlead.api.gateway import FrontendValidation, Gateway, ListenerSet, Reference, ReferenceGrant
from fairlead.api.tcploadbalancer import TargetType

#: Namespace and name.
ObjectName = tuple[str, str]


class GatewayView(msgspec.Struct, frozen=True):
    """One Gateway of ours.

    ``load_balancer_class`` is that of its class, empty for the default one. ``listener_sets`` are all that name it, in
    any order. ``namespaces`` are all of the member with their labels. ``certificates`` are the Secrets that
    ``secrets_named`` lists; ``ca_bundles`` are the ``ca.crt`` of the ConfigMaps that ``config_maps_named`` lists:
    absent without the ConfigMap, empty when it has no such entry or that is no PEM. ``issuer`` is that of a Gateway
    that names none; ``managed`` are the certificates that the hub gets, by name.
    """

    gateway: Gateway
    load_balancer_class: str = ""
    listener_sets: tuple[ListenerSet, ...] = ()
    namespaces: Mapping[str, Mapping[str, str]] = {}
    grants: tuple[ReferenceGrant, ...] = ()
    certificates: Mapping[ObjectName, CertificateState] = {}
    ca_bundles: Mapping[ObjectName, str] = {}
    targets: TargetType = "Pod"
    issuer: str = ""
    managed: Mapping[str, CertificateState] = {}


def secrets_named(obj: Gateway | ListenerSet) -> frozenset[ObjectName]:
    """Return the Secrets that a Gateway or ListenerSet names, as certificates of listeners or towards backends."""
    references = [
        reference
        for listener in obj.spec.listeners or ()
        if listener.tls is not None
        for reference in listener.tls.certificate_refs or ()
    ]
    if isinstance(obj, Gateway) and (client := client_certificate_of(obj)) is not None:
        references.append(client)
    return frozenset(
        (each.namespace or obj.metadata.namespace, each.name) for each in references if is_secret(each) and each.name
    )


def config_maps_named(gateway: Gateway) -> frozenset[ObjectName]:
    """Return the ConfigMaps that a Gateway names as authorities of its clients."""
    return frozenset(
        (each.namespace or gateway.metadata.namespace, each.name)
        for validation in validations_of(gateway)
        for each in validation.ca_certificate_refs or ()
        if is_config_map(each) and each.name
    )


def client_certificate_of(gateway: Gateway) -> Reference | None:
    """Return the certificate that is shown to backends, None when there is none."""
    backend = gateway.spec.tls.backend if gateway.spec.tls is not None else None
    return backend.client_certificate_ref if backend is not None else None


def validations_of(gateway: Gateway) -> Iterable[FrontendValidation]:
    """Yield how clients are validated: by default, and by port."""
    frontend = gateway.spec.tls.frontend if gateway.spec.tls is not None else None
    if frontend is not None:
        for each in (frontend.default, *(port.tls for port in frontend.per_port or ())):
            if each.validation is not None:
                yield each.validation


def validation_at(gateway: Gateway, port: int) -> FrontendValidation | None:
    """Return how the clients of an HTTPS port are validated; what is said of a port replaces the default."""
    frontend = gateway.spec.tls.frontend if gateway.spec.tls is not None else None
    if frontend is None:
        return None
    of_port = next((each.tls for each in frontend.per_port or () if each.port == port), frontend.default)
    return of_port.validation


def is_secret(reference: Reference) -> bool:
    """Return whether a reference to a certificate names a Secret; unset fields mean that."""
    return (reference.group or CORE_GROUP, reference.kind or "Secret") == SECRET


def is_config_map(reference: Reference) -> bool:
    """Return whether a reference to authorities names a ConfigMap."""
    return (reference.group or CORE_GROUP, reference.kind) == CONFIG_MAP
