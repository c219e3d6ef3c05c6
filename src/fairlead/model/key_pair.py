"""A certificate chain with its private key: what is wrong with the two, found at a bounded cost.

In: PEM. Out: the public key, or a sentence. Never: a test of large numbers for being prime, which takes the library
seconds; and no part of a key in a message.
"""

from __future__ import annotations

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
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if private.public_key().public_bytes(*form) != public.public_bytes(*form):
        raise ValueError("tls.key is not the key of the first certificate in tls.crt")
    if isinstance(private, rsa.RSAPrivateKey) and not _is_whole(private.private_numbers()):
        raise ValueError("tls.key is damaged: its numbers do not belong together")
    return public


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
