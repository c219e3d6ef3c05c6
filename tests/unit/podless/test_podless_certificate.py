"""The certificate of the server."""

import ssl

from podless.credentials import make_certificate


def test_certificates_are_trusted_by_openssl() -> None:
    made = make_certificate(["127.0.0.1", "::1", "localhost"], 1_800_000_000)
    path_text = ssl.create_default_context(cadata=made.pem).get_ca_certs()[0]
    names = dict.fromkeys(value for _, value in path_text["subjectAltName"])  # type: ignore[union-attr]
    assert list(names) == ["127.0.0.1", "0:0:0:0:0:0:0:1", "localhost"]
    assert made.pem != make_certificate(["localhost"], 1_800_000_000).pem


def test_a_clock_set_back_by_a_time_zone_keeps_certificates_valid() -> None:
    now = 1_800_000_000
    made = ssl.create_default_context(cadata=make_certificate(["localhost"], now).pem).get_ca_certs()[0]
    assert ssl.cert_time_to_seconds(str(made["notBefore"])) <= now - 14 * 3600
