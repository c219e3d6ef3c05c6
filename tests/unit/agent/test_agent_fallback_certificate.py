"""The certificate for server names that have none of their own."""

from __future__ import annotations

import datetime as dt

import pytest
from cryptography import x509

from fairlead.agent.sources.shared import make_fallback
from fairlead.api.kubernetes import Secret
from fairlead.translate.certificates import certificate_of

NOW = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)


@pytest.mark.req("GI-9")
def test_a_placeholder_certificate_serves_and_is_not_trusted() -> None:
    digest, data = make_fallback(NOW)
    certificate = certificate_of("fallback", Secret(type="kubernetes.io/tls", data=data))
    assert certificate.digest == digest
    parsed = x509.load_pem_x509_certificate(certificate.chain)
    names = parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert all(name.endswith(".invalid") for name in names.get_values_for_type(x509.DNSName))
    assert parsed.not_valid_before_utc < NOW < parsed.not_valid_after_utc
    assert make_fallback(NOW)[0] != digest, "each class has a key of its own"
