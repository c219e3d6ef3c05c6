"""Validates certificates for Envoy, and encodes them as Secrets.

In: PEM. Out: Secrets as bytes (SDS), and what is wrong with a certificate or a bundle. Envoy refuses what does not fit,
and a listener that waits for a refused secret serves nothing, so it is found here. Keys are in no message.
Source: https://www.envoyproxy.io/docs/envoy/latest/api-v3/extensions/transport_sockets/tls/v3/secret.proto
"""

from __future__ import annotations

import warnings

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from fairlead.model.http import Certificate
from fairlead.model.key_pair import public_key_of
from fairlead.providers.envoy.schema import Schema

SECRET = "envoy.extensions.transport_sockets.tls.v3.Secret"  # noqa: S105 (the name of a message type)
_MIN_RSA_BITS = 2048
_CURVES = frozenset({"secp256r1", "secp384r1", "secp521r1"})


def invalid_certificate(certificate: Certificate) -> str:
    """Return what is wrong with a certificate or its key; empty when nothing is. An expired one can be used."""
    try:
        public = public_key_of(certificate.chain, certificate.key)
    except ValueError as error:
        return str(error)
    if isinstance(public, rsa.RSAPublicKey):
        return "" if public.key_size >= _MIN_RSA_BITS else f"an RSA key needs {_MIN_RSA_BITS} bits or more"
    if isinstance(public, ec.EllipticCurvePublicKey):
        return "" if public.curve.name in _CURVES else f"the curve {public.curve.name} is not supported"
    return "the key is neither RSA nor ECDSA"


def invalid_bundle(bundle: str) -> str:
    """Return what is wrong with a bundle of authorities; empty when nothing is."""
    try:
        with warnings.catch_warnings():
            # Old authorities have serial numbers that the library does not like.
            warnings.simplefilter("ignore")
            x509.load_pem_x509_certificates(bundle.encode())
    except ValueError:
        return "it holds no certificate in PEM"
    return ""


def certificate_bytes(schema: Schema, name: str, certificate: Certificate) -> bytes:
    """Encode a certificate with its key as a secret."""
    fields = {
        "certificate_chain": {"inline_bytes": certificate.chain},
        "private_key": {"inline_bytes": certificate.key},
    }
    return schema.encode(SECRET, {"name": name, "tls_certificate": fields})


def authority_bytes(schema: Schema, name: str, bundle: str) -> bytes:
    """Encode a bundle of authorities as a secret."""
    fields = {"trusted_ca": {"inline_bytes": bundle.encode()}}
    return schema.encode(SECRET, {"name": name, "validation_context": fields})
