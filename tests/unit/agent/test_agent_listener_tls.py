"""The certificates of listeners: missing, broken, not permitted, and the last good version."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.agent.sources.gateway.listeners import plan_gateway
from fairlead.agent.sources.http import CertificateState
from tests.unit.agent.gateway_objects import certificate, gateway, grant, https, kinds, reasons, served, view


@pytest.mark.req("G-40", "G-41", "G-43")
@pytest.mark.parametrize(
    ("tls", "state", "reason"),
    [
        (certificate(name="absent"), None, "InvalidCertificateRef"),
        (certificate(name="cert", group="example.com"), None, "InvalidCertificateRef"),
        (certificate(name="cert", kind="ConfigMap"), None, "InvalidCertificateRef"),
        (certificate(name="cert"), CertificateState("", "tls.crt is no PEM"), "InvalidCertificateRef"),
        (certificate(name="cert", namespace="certs"), None, "RefNotPermitted"),
        (certificate(name="absent", namespace="certs"), None, "RefNotPermitted"),
        ({"mode": "Terminate"}, None, "InvalidCertificateRef"),
        (None, None, "InvalidCertificateRef"),
    ],
)
def test_without_a_usable_certificate_the_port_stays_closed(
    tls: dict[str, Any] | None, state: CertificateState | None, reason: str
) -> None:
    fields: dict[str, Any] = {} if state is None else {"certificates": {("infra", "cert"): state}}
    plan = plan_gateway(view(gateway(https(tls=tls)), **fields))
    assert reasons(plan.listeners[0].judgements) == {
        "Accepted": "True/Accepted",
        "ResolvedRefs": f"False/{reason}",
        "Programmed": "False/Invalid",
    }
    assert kinds(plan.listeners[0]) == ["HTTPRoute", "GRPCRoute"]
    # The Gateway keeps its address, and no other listener gets the requests for this hostname.
    assert served(plan)["https"].certificates == ()
    assert reasons(plan.judgements) == {"Accepted": "True/Accepted"}


@pytest.mark.req("G-42")
def test_a_certificate_of_another_namespace_with_a_grant() -> None:
    tls = certificate(name="cert", namespace="certs")
    plan = plan_gateway(view(gateway(https(tls=tls)), grants=(grant(),)))
    assert reasons(plan.listeners[0].judgements) == {"Accepted": "True/Accepted", "ResolvedRefs": "True/ResolvedRefs"}
    assert served(plan)["https"].certificates == ("tls.certs.cert",)


@pytest.mark.req("G-43")
def test_the_last_good_version_is_served_on_and_reported() -> None:
    state = CertificateState("d0", "tls.key is not the key of the first certificate in tls.crt")
    plan = plan_gateway(view(gateway(https()), certificates={("infra", "cert"): state}))
    assert reasons(plan.listeners[0].judgements) == {
        "Accepted": "True/Accepted",
        "ResolvedRefs": "False/InvalidCertificateRef",
    }
    assert "the previous version is still served" in plan.listeners[0].judgements[1].message
    assert served(plan)["https"].certificates == ("tls.infra.cert",)


def test_valid_certificates_of_several_are_served() -> None:
    tls = {"mode": "Terminate", "certificateRefs": [{"name": "absent"}, {"name": "cert"}, {"name": "cert"}]}
    plan = plan_gateway(view(gateway(https(tls=tls))))
    assert served(plan)["https"].certificates == ("tls.infra.cert",)
    assert reasons(plan.listeners[0].judgements) == {
        "Accepted": "True/Accepted",
        "ResolvedRefs": "False/InvalidCertificateRef",
    }
