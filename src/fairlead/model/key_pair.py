"""A certificate chain with its private key: what is wrong with the two, found at a bounded cost.

In: PEM. Out: the public key, or a sentence. Never: a test of large numbers for being prime, which takes the library
seconds; and no part of a key in a message.
"""

from __future__ import annotations

import base64
import binascii
import warnings
from collections.abc import Collection
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

#: A chain is sent in each handshake. It has room for a thousand names and ten authorities.
MAX_CHAIN_BYTES = 65_536
#: An RSA key of 8,192 bits has 6,500 bytes.
MAX_KEY_BYTES = 8_192
#: A handshake with twice as many bits takes a proxy seven times as long.
MAX_RSA_BITS = 4_096


def public_key_of(chain: bytes, key: bytes) -> CertificatePublicKeyTypes:
    """Return the public key of the first certificate.

    Raises:
        ValueError: chain or key are missing, unreadable or too large, or do not belong together.
    """
    for entry, raw, most in (("tls.crt", chain, MAX_CHAIN_BYTES), ("tls.key", key, MAX_KEY_BYTES)):
        if len(raw) > most:
            raise ValueError(f"{entry} has {len(raw):,} bytes, and {most:,} are the most that is served; shorten it")
    try:
        first = x509.load_pem_x509_certificates(chain)[0]
        public = first.public_key()
    except (ValueError, IndexError):
        raise ValueError("tls.crt has no certificate in PEM") from None
    except UnsupportedAlgorithm:
        raise ValueError("tls.crt has a key of a type that is not served; use RSA, or ECDSA on P-256") from None
    try:
        canonical_pem(chain)
    except ValueError:
        raise ValueError("tls.crt has a damaged certificate; write the whole chain again") from None
    if isinstance(public, rsa.RSAPublicKey) and public.key_size > MAX_RSA_BITS:
        raise ValueError(
            f"tls.crt has an RSA key of {public.key_size:,} bits, and {MAX_RSA_BITS:,} are the most that is served; "
            "use one of 2,048 bits, or ECDSA on P-256"
        )
    try:
        private = load_pem_private_key(key, password=None, unsafe_skip_rsa_key_validation=True)
    except (ValueError, TypeError):
        raise ValueError("tls.key has no private key in PEM without a password") from None
    except UnsupportedAlgorithm:
        raise ValueError("tls.key has a private key of an unknown type") from None
    if first.public_key_algorithm_oid == x509.PublicKeyAlgorithmOID.RSASSA_PSS or _RSA_PSS in _der_of(key):
        # The library takes these for RSA keys, and Envoy rejects them.
        raise ValueError("the key is for RSA-PSS only, which is not served; use RSA, or ECDSA on P-256")
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if private.public_key().public_bytes(*form) != public.public_bytes(*form):
        raise ValueError("tls.key is not the key of the first certificate in tls.crt")
    if isinstance(private, rsa.RSAPrivateKey) and not _is_whole(private.private_numbers()):
        raise ValueError("tls.key is damaged: its numbers do not belong together")
    return public


#: The algorithm of keys for RSA-PSS only, as their files have it (RFC 4055).
_RSA_PSS = bytes.fromhex("06092a864886f70d01010a")


def _der_of(key: bytes) -> bytes:
    """Return what the first private key in PEM encodes; empty for a form with headers."""
    try:
        return base64.b64decode(key.partition(b"PRIVATE KEY-----")[2].partition(b"-----")[0])
    except binascii.Error:
        return b""


def canonical_pem(certificates: bytes) -> bytes:
    """Return the certificates of a text in PEM, and nothing else of it, in the form that every proxy reads.

    Without a line end between two of them, for example, this library reads both, and Envoy neither.

    Raises:
        ValueError: there is none, or one of them is damaged.
    """
    with warnings.catch_warnings():
        # Old authorities have serial numbers that the library does not like.
        warnings.simplefilter("ignore")
        try:
            read = x509.load_pem_x509_certificates(certificates)
        except ValueError:
            raise ValueError("no certificate in PEM") from None
    if 2 * len(read) != certificates.count(b"CERTIFICATE-----"):
        raise ValueError("a damaged certificate")
    return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in read)


@lru_cache(maxsize=256)
def readable_authorities(bundle: str) -> tuple[str, str]:
    """Return a bundle as every proxy reads it, and what is wrong with it; a damaged one stays as it is."""
    try:
        return (canonical_pem(bundle.encode()).decode() if bundle else ""), ""
    except ValueError as error:
        return bundle, str(error)


class Validity(NamedTuple):
    """The DNS names and IP addresses that a certificate is good for, in small letters, and when it expires."""

    names: frozenset[str]
    ends: datetime


def validity_of(chain: bytes) -> Validity | None:
    """Return what the first certificate of a chain is good for; its subject does not count, as with browsers.

    None: there is no certificate, or the library cannot read its extensions, which proxies may be able to.
    """
    try:
        certificate = x509.load_pem_x509_certificate(chain)
        entries = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return Validity(frozenset(), x509.load_pem_x509_certificate(chain).not_valid_after_utc)
    except (ValueError, UnsupportedAlgorithm):
        return None
    names = [name.lower().removesuffix(".") for name in entries.get_values_for_type(x509.DNSName)]
    addresses = [str(address) for address in entries.get_values_for_type(x509.IPAddress)]
    return Validity(frozenset([*names, *addresses]), certificate.not_valid_after_utc)


def covers(names: Collection[str], host: str) -> bool:
    """Return whether a certificate for ``names`` is good for ``host``; for a wildcard any name below it is enough.

    A listener for ``*.example.com`` may serve only names that its certificate has.
    """
    host = host.lower().removesuffix(".")
    if host.startswith("*."):
        return any(name.endswith(host[1:]) for name in names)
    return host in names or f"*.{host.partition('.')[2]}" in names


def _is_whole(numbers: rsa.RSAPrivateNumbers) -> bool:
    """Return whether the parts of an RSA key fit; as proxies do, it does not ask whether its primes are any."""
    p, q, d, public = numbers.p, numbers.q, numbers.d, numbers.public_numbers
    return (
        min(p, q) > 1
        and p * q == public.n
        and (numbers.dmp1, numbers.dmq1) == (d % (p - 1), d % (q - 1))
        and d * public.e % (p - 1) == d * public.e % (q - 1) == 1
        and numbers.iqmp * q % p == 1
    )
