"""The certificate of the server."""

import ssl

from fairlead.apiserver.certificate import make_certificate


def test_certificates_are_trusted_by_openssl() -> None:
    made = make_certificate(["127.0.0.1", "::1", "localhost"], 1_800_000_000)
    path_text = ssl.create_default_context(cadata=made.pem).get_ca_certs()[0]
    names = dict.fromkeys(value for _, value in path_text["subjectAltName"])  # type: ignore[union-attr]
    assert list(names) == ["127.0.0.1", "0:0:0:0:0:0:0:1", "localhost"]
    assert made.pem != make_certificate(["localhost"], 1_800_000_000).pem
