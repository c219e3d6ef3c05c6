"""Which certificate is served for the TLS hosts of an Ingress, and what the hub is asked to get for them."""

from __future__ import annotations

import pytest

from fairlead.agent.sources.http import CertificateState, merged_spec, request_name, state_of
from fairlead.agent.sources.ingress.plan import Lookup, Section, sections_of
from fairlead.api.kubernetes import IngressObject, IngressSpec, IngressTls
from fairlead.api.managedcertificate import ManagedCertificate, ManagedCertificateStatus
from fairlead.api.meta import ObjectMeta, WireCondition
from fairlead.api.names import ANNOTATION_CERTIFICATE_ISSUER

HOST = "shop.example.com"
MISSING = CertificateState(problem="it is not there", missing=True)


def ingress(*tls: IngressTls, **annotations: str) -> IngressObject:
    meta = ObjectMeta(name="web", namespace="shop", uid="u", annotations=annotations)
    return IngressObject(metadata=meta, spec=IngressSpec(tls=list(tls)))


def sections(*tls: IngressTls, issuer: str = "", default: str = "", secrets=None, managed=None) -> list[Section]:
    annotations = {ANNOTATION_CERTIFICATE_ISSUER: issuer} if issuer else {}
    lookup = Lookup("ingressclass.fairlead", secrets or {}, managed or {}, default)
    return list(sections_of(ingress(*tls, **annotations), lookup))


TLS = IngressTls(hosts=[HOST], secret_name="cert")


def test_a_secret_of_the_member_is_served_whatever_issuer_is_named():
    (section,) = sections(TLS, issuer="le", secrets={("shop", "cert"): CertificateState("digest")})
    assert section.request is None
    assert section.certificate is not None
    assert section.certificate.digest == "digest"


@pytest.mark.parametrize(("issuer", "default"), [("le", ""), ("", "le"), ("le", "other")])
def test_a_secret_that_is_not_there_is_asked_of_the_issuer(issuer: str, default: str):
    (section,) = sections(TLS, issuer=issuer, default=default, secrets={("shop", "cert"): MISSING})
    assert section.request is not None
    assert (section.request.hosts, section.request.issuer) == ((HOST,), "le")
    assert (section.certificate, section.problem) == (None, "")


def test_without_an_issuer_the_user_reads_that_the_secret_is_missing():
    (section,) = sections(TLS, secrets={("shop", "cert"): MISSING})
    assert section.request is None
    assert section.problem == f"Secret cert: it is not there; {HOST} gets the fallback certificate"


def test_a_section_without_a_secret_is_for_the_issuer_only():
    bare = IngressTls(hosts=[HOST])
    (section,) = sections(bare, issuer="le")
    assert section.request is not None
    (section,) = sections(bare)
    assert "names no secretName" in section.problem


@pytest.mark.parametrize("secret", ["cert", ""])
def test_more_names_than_a_certificate_has_are_reported_with_the_number(secret: str):
    hosts = [f"h{number}.example.com" for number in range(101)]
    missing = {("shop", "cert"): MISSING}
    (section,) = sections(IngressTls(hosts=hosts, secret_name=secret), issuer="le", secrets=missing)
    assert section.request is None
    assert "at most 100 names" in section.problem
    assert "101" in section.problem
    (section,) = sections(IngressTls(hosts=hosts[:100], secret_name=secret), issuer="le", secrets=missing)
    assert section.request is not None


def test_what_cert_manager_makes_is_not_asked_of_the_default_issuer():
    lookup = Lookup("lb", {("shop", "cert"): MISSING}, {}, "le")
    obj = ingress(TLS, **{"cert-manager.io/cluster-issuer": "theirs"})
    (section,) = sections_of(obj, lookup)
    assert section.request is None


def test_the_hubs_certificate_replaces_a_left_copy_once_issued():
    name = request_name([HOST], "le")
    left = CertificateState("old", "it is not there", missing=True)
    (section,) = sections(TLS, issuer="le", secrets={("shop", "cert"): left})
    assert section.certificate is not None
    assert section.certificate.digest == "old"
    (section,) = sections(TLS, issuer="le", managed={name: CertificateState("new")})
    assert section.certificate is not None
    assert (section.certificate.name, section.certificate.digest) == (name, "")


def test_a_failure_of_the_authority_is_read_on_the_ingress():
    name = request_name([HOST], "le")
    (section,) = sections(TLS, issuer="le", managed={name: CertificateState(problem="it was refused")})
    assert section.problem == f"the certificate for {HOST}: it was refused; {HOST} gets the fallback certificate"
    (section,) = sections(TLS, issuer="le", managed={name: CertificateState("d", "it was refused")})
    assert section.problem.endswith("the previous version is still served")


def test_the_same_names_are_one_certificate_however_many_ask():
    (first,) = sections(TLS, issuer="le")
    other = Lookup("gateway.shop.web", {}, {}, "le")
    (second,) = sections_of(ingress(IngressTls(hosts=[HOST.upper()], secret_name="x")), other)
    assert first.request is not None
    assert second.request is not None
    assert first.request.name == second.request.name
    spec = merged_spec([first.request, second.request])
    assert spec is not None
    assert spec.load_balancers == ("gateway.shop.web", "ingressclass.fairlead")
    assert merged_spec([]) is None


def test_what_users_read_follows_from_the_status():
    def obj(digest: str, *conditions: WireCondition) -> ManagedCertificate:
        return ManagedCertificate(status=ManagedCertificateStatus(digest=digest, conditions=list(conditions)))

    refused = WireCondition(type="Ready", status="False", reason="AuthorityRefused", message="why")
    stale = WireCondition(type="Stale", status="True", reason="AuthorityRefused", message="why")
    pending = WireCondition(type="Ready", status="False", reason="Pending", message="it is ordered")
    assert state_of(obj("", refused)) == CertificateState(problem="why")
    assert state_of(obj("d", stale)) == CertificateState("d", "why")
    assert state_of(obj("d")) == CertificateState("d")
    assert state_of(obj("", pending)).problem == state_of(None).problem
