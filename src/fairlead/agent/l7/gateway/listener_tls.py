"""The certificates that a listener presents, and the authorities by which it verifies its clients.

In: references of a Gateway or ListenerSet, with what they name. Out: certificates and authorities that can be used,
and a judgement of the references that cannot. A reference that is not permitted is reported as such whether or not the
object is there. Never: a key. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fairlead.agent.l7.certificates import NOT_IN_MEMBER, CertificateState
from fairlead.agent.l7.gateway.judgements import RESOLVED_REFS, bad
from fairlead.agent.l7.gateway.plan import Judgement, ParentKey
from fairlead.agent.l7.gateway.references import CONFIG_MAP, SECRET, permits
from fairlead.agent.l7.gateway.view import GatewayView, client_certificate_of, is_config_map, is_secret
from fairlead.agent.l7.identity import certificate_name, gateway_load_balancer_name
from fairlead.agent.l7.requests import PENDING, CertificateRequest, issuer_of, request
from fairlead.api.gateway import GATEWAY_GROUP, FrontendValidation, GrantFrom, Listener, Reference
from fairlead.api.httploadbalancer import CertificateRef
from fairlead.api.tcploadbalancer import Origin
from fairlead.model.http import MAX_BUNDLE, ClientValidation

FALLBACK = "AllowInsecureFallback"
_INVALID_CERTIFICATE = "InvalidCertificateRef"


class Certificates(NamedTuple):
    """The certificates that can be shown, what is wrong with the others, and what the hub is asked to get."""

    usable: tuple[CertificateRef, ...]
    problem: Judgement | None
    requests: tuple[CertificateRequest, ...] = ()


class Authorities(NamedTuple):
    """How clients are validated (None when it is not possible), and what is wrong with the references."""

    validation: ClientValidation | None
    problem: Judgement | None


def certificates_of(listener: Listener, *, parent: ParentKey, view: GatewayView) -> Certificates:
    """Return the certificates of a terminating listener of ``parent``."""
    references = (listener.tls.certificate_refs if listener.tls is not None else None) or ()
    usable: list[CertificateRef] = []
    problems: list[Judgement] = []
    requests: list[CertificateRequest] = []
    if not references:
        problems.append(
            bad(RESOLVED_REFS, _INVALID_CERTIFICATE, "tls.certificateRefs: name a Secret with a certificate")
        )
    for each in references:
        certificate, problem = _secret(each, "tls.certificateRefs", _INVALID_CERTIFICATE, parent=parent, view=view)
        request = _asked(listener, each, parent=parent, view=view) if problem is not None else None
        if request is not None:
            requests.append(request)
            certificate, problem = _managed(request, certificate, view)
        usable += [certificate] if certificate is not None else []
        problems += [problem] if problem is not None else []
    return Certificates(tuple(dict.fromkeys(usable)), merged(problems), tuple(dict.fromkeys(requests)))


def _asked(
    listener: Listener, reference: Reference, *, parent: ParentKey, view: GatewayView
) -> CertificateRequest | None:
    """Return what the hub is asked to get for a listener whose Secret the member does not have; None for nothing."""
    namespace = reference.namespace or parent.namespace
    if not (is_secret(reference) and _permitted(SECRET, namespace, reference.name, parent=parent, view=view)):
        return None
    state = view.certificates.get((namespace, reference.name))
    if state is not None and not state.missing:
        return None
    meta = view.gateway.metadata
    return request(
        (listener.hostname,),
        issuer_of(view.gateway, view.issuer),
        load_balancer=gateway_load_balancer_name(meta.namespace, meta.name),
        origin=Origin(kind="Gateway", namespace=meta.namespace, name=meta.name, uid=meta.uid),
    )


def _managed(
    request: CertificateRequest, copy: CertificateRef | None, view: GatewayView
) -> tuple[CertificateRef | None, Judgement | None]:
    """Return the certificate that the hub gets, once it has it; until then a copy that is left is served."""
    state = view.managed.get(request.name, CertificateState(problem=PENDING))
    # The hub knows which version it has written: a renewal changes nothing here.
    certificate = CertificateRef(request.name) if state.digest else copy
    if not state.problem:
        return certificate, None
    kept = "; the version before is served on" if certificate is not None and state.problem != PENDING else ""
    text = f"tls.certificateRefs: the certificate for {', '.join(request.hosts)}: {state.problem}{kept}"
    return certificate, bad(RESOLVED_REFS, _INVALID_CERTIFICATE, text)


def client_certificate(view: GatewayView, parent: ParentKey) -> Certificates | None:
    """Return the certificate that the Gateway shows to backends, None when it names none."""
    reference = client_certificate_of(view.gateway)
    if reference is None:
        return None
    field = "tls.backend.clientCertificateRef"
    certificate, problem = _secret(reference, field, "InvalidClientCertificateRef", parent=parent, view=view)
    return Certificates((certificate,) if certificate is not None else (), problem)


def authorities_of(validation: FrontendValidation, *, gateway: ParentKey, view: GatewayView) -> Authorities:
    """Return the authorities that ``validation`` names; with several, those that can be used count."""
    bundles: list[str] = []
    problems: list[Judgement] = []
    for each in validation.ca_certificate_refs or ():
        bundle, problem = _bundle(each, gateway=gateway, view=view)
        bundles += [bundle] if bundle else []
        problems += [problem] if problem is not None else []
    text = "\n".join(bundle.strip() for bundle in dict.fromkeys(bundles)) + "\n"
    if len(text) > MAX_BUNDLE:
        problems.append(_bad_ca("InvalidCACertificateRef", f"they have more than {MAX_BUNDLE} characters"))
        bundles = []
    if not bundles and not problems:
        problems.append(_bad_ca("InvalidCACertificateRef", "name a ConfigMap with ca.crt"))
    usable = ClientValidation(text, optional=validation.mode == FALLBACK) if bundles else None
    return Authorities(usable, merged(problems))


def merged(problems: Sequence[Judgement]) -> Judgement | None:
    """Return the first problem with the messages of all, None when there is none."""
    if not problems:
        return None
    first = problems[0]
    return bad(first.type, first.reason, "; ".join(dict.fromkeys(each.message for each in problems)))


def _secret(
    reference: Reference, field: str, reason: str, *, parent: ParentKey, view: GatewayView
) -> tuple[CertificateRef | None, Judgement | None]:
    if not is_secret(reference):
        shown = f"{reference.kind}.{reference.group}" if reference.group else reference.kind
        return None, bad(RESOLVED_REFS, reason, f"{field}: {shown} {reference.name} is no Secret")
    namespace = reference.namespace or parent.namespace
    if not _permitted(SECRET, namespace, reference.name, parent=parent, view=view):
        return None, _not_permitted(field, "Secret", namespace, reference.name, parent)
    missing = CertificateState(problem=NOT_IN_MEMBER, missing=True)
    state = view.certificates.get((namespace, reference.name), missing)
    name = certificate_name(namespace, reference.name)
    certificate = CertificateRef(name, state.digest) if state.digest else None
    if not state.problem:
        return certificate, None
    kept = "; the version before is served on" if certificate is not None else ""
    shown = f"Secret {namespace}/{reference.name}"
    return certificate, bad(RESOLVED_REFS, reason, f"{field}: {shown}: {state.problem}{kept}")


def _bundle(reference: Reference, *, gateway: ParentKey, view: GatewayView) -> tuple[str, Judgement | None]:
    namespace, name = reference.namespace or gateway.namespace, reference.name
    if not is_config_map(reference):
        shown = f"{reference.kind}.{reference.group}" if reference.group else reference.kind
        return "", _bad_ca("InvalidCACertificateKind", f"{shown} {name} is no ConfigMap")
    if not _permitted(CONFIG_MAP, namespace, name, parent=gateway, view=view):
        return "", _not_permitted("caCertificateRefs", "ConfigMap", namespace, name, gateway)
    bundle = view.ca_bundles.get((namespace, name))
    if bundle:
        return bundle, None
    why = "it is not there" if bundle is None else "its entry ca.crt has no certificate in PEM"
    return "", _bad_ca("InvalidCACertificateRef", f"ConfigMap {namespace}/{name}: {why}")


def _bad_ca(reason: str, why: str) -> Judgement:
    return bad(RESOLVED_REFS, reason, f"spec.tls.frontend: caCertificateRefs: {why}")


def _permitted(target: tuple[str, str], namespace: str, name: str, *, parent: ParentKey, view: GatewayView) -> bool:
    return permits(view.grants, GrantFrom(GATEWAY_GROUP, parent.kind, parent.namespace), target, namespace, name)


def _not_permitted(field: str, kind: str, namespace: str, name: str, parent: ParentKey) -> Judgement:
    return bad(
        RESOLVED_REFS,
        "RefNotPermitted",
        f"{field}: no ReferenceGrant in namespace {namespace} lets a {parent.kind} of namespace {parent.namespace} "
        f"refer to {kind} {name}",
    )
