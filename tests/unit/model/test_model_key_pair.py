"""Reading a Secret costs little, whatever is in it."""

from __future__ import annotations

import math
from itertools import count

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from fairlead.model.key_pair import (
    MAX_CHAIN_BYTES,
    MAX_KEY_BYTES,
    MAX_RSA_BITS,
    canonical_pem,
    covers,
    public_key_of,
    validity_of,
)
from fairlead_demo.worlds.certificates import self_signed

CHAIN, KEY = self_signed("shop.example.com")
#: ECDSA on secp112r1, which OpenSSL has, and the library does not.
RARE_CHAIN = b"""-----BEGIN CERTIFICATE-----
MIIBITCB7KADAgECAhQB5TxqP/TfV/n35cfPOlWKzqsUqzAKBggqhkjOPQQDAjAM
MQowCAYDVQQDDAFhMB4XDTI2MTEyNTEzMjUwOVoXDTM2MTEyMjEzMjUwOVowDDEK
MAgGA1UEAwwBYTAyMBAGByqGSM49AgEGBSuBBAAGAx4ABNL3PAia+/qkNpANPIu3
tf5hSYf2ljG69gKzSF6jUzBRMB0GA1UdDgQWBBT6aFfedKZR09OPTpbZKZ92c1f6
tTAfBgNVHSMEGDAWgBT6aFfedKZR09OPTpbZKZ92c1f6tTAPBgNVHRMBAf8EBTAD
AQH/MAoGCCqGSM49BAMCAyQAMCECDwDAK/LETxapLmMZwd8ZDAIOdWXhEhJmuaYb
ZoJEowE=
-----END CERTIFICATE-----
"""
RARE_KEY = b"""-----BEGIN PRIVATE KEY-----
ME4CAQAwEAYHKoZIzj0CAQYFK4EEAAYENzA1AgEBBA4X1DUunJIWGzxDgmICYaEg
Ax4ABNL3PAia+/qkNpANPIu3tf5hSYf2ljG69gKzSF4=
-----END PRIVATE KEY-----
"""
#: RSA-PSS, 1,024 bits.
PSS_CHAIN = b"""-----BEGIN CERTIFICATE-----
MIICWjCCAY+gAwIBAgIUY2ChhAsfT50ygQbeWsQOzXpRZqswQQYJKoZIhvcNAQEK
MDSgDzANBglghkgBZQMEAgEFAKEcMBoGCSqGSIb3DQEBCDANBglghkgBZQMEAgEF
AKIDAgFeMAwxCjAIBgNVBAMMAWEwHhcNMjYxMTI4MDYyMTE1WhcNMzYxMTI1MDYy
MTE1WjAMMQowCAYDVQQDDAFhMIGdMAsGCSqGSIb3DQEBCgOBjQAwgYkCgYEAtG3Q
8H1CoAaEIBPXw0pUzGqO3jFSjTz5wl0dgYZjTCl9WMgTNr4+dKrTPXaqXG1HLgEc
fmLMdIv0wS7kRoADjY2u6vdpID1YX8n3GtdeDm3eQtvT2Gd26MoFceemho94uKJF
XL3mIharnVAfG2bckoc2t1kPnRcRdYXfqJ5WkNUCAwEAAaNTMFEwHQYDVR0OBBYE
FCn5WxFCQ1i/5R8/m73gHA0RrJPZMB8GA1UdIwQYMBaAFCn5WxFCQ1i/5R8/m73g
HA0RrJPZMA8GA1UdEwEB/wQFMAMBAf8wQQYJKoZIhvcNAQEKMDSgDzANBglghkgB
ZQMEAgEFAKEcMBoGCSqGSIb3DQEBCDANBglghkgBZQMEAgEFAKIDAgFeA4GBAJAI
Yr2yp7Nn/ewpTjER4KMW14zw0EABo2P9ipQYBS+HtklyiWciYy9Q5++zzjn1w1+Z
6LSDc/HmzUOF8tTgXrZutt7gU28YGOMnLNmHrc0XX7cKjX3KgI1afB1/S2HTa8sk
7NLD+XepXshEl3MDutlPwYj5DB4FebXpJAi/zZhC
-----END CERTIFICATE-----
"""
PSS_KEY = b"""-----BEGIN PRIVATE KEY-----
MIICdQIBADALBgkqhkiG9w0BAQoEggJhMIICXQIBAAKBgQC0bdDwfUKgBoQgE9fD
SlTMao7eMVKNPPnCXR2BhmNMKX1YyBM2vj50qtM9dqpcbUcuARx+Ysx0i/TBLuRG
gAONja7q92kgPVhfyfca114Obd5C29PYZ3boygVx56aGj3i4okVcveYiFqudUB8b
ZtyShza3WQ+dFxF1hd+onlaQ1QIDAQABAoGBAIxMzGkE7hbjmkAbTe7U0QW3YmrS
rZ+YJ5qEr5n1dydVJ9wukApEeupbnzEvIiAG9Y+HW7HHf7as0eCaZvWPO7K6pbwu
rrMZVtszLwGEgAlzUhJJPjKyaO5y5xGAXKd2kAZO0PFpXeq2EFCtUJsHkkf52MN/
d+kAz8Kdn1bVjHuhAkEA57w2xoLa1U4LotepYkmPZhQffGPGYk1inyF2l2repRbG
VGI3YaahO/VTjw0KK4mhhOte1qSNfxV+I4UxNHA1XQJBAMdST56VA016AJeygZR/
u2aDoEERjzyT5r/MTdyRPHzt4qgxTLPTQfX6rbuUGkNUbj94oBjy5xS6TDQFt/Sc
WdkCQAcPsCeaYyquxyH+KlYpYao9oLv8mlXyf7fToDZ69i/XotF9cKyUFEOsdRBd
2Fp9RiOzvF8UAo/FyuMwMtCjPq0CQC2iteIMIhZyEYKp9ysl16VQC7f6Kj5napSN
VWJjymKcIKH7r6EYhGiqPW7OKPkzco6LsrQjoS7IvLvId2bFCXkCQQC9STKqpUYr
UJ/mYls8algDTElGSuTYwyWxFa9aYjWev6UMguOYqMNABj6VPq4I4VpLsM2skqmy
8AJa5YGFMhNR
-----END PRIVATE KEY-----
"""


@pytest.mark.req("L7-13")
def test_keys_for_rsa_pss_only_are_rejected_before_envoy_does() -> None:
    with pytest.raises(ValueError, match="RSA-PSS only"):
        public_key_of(PSS_CHAIN, PSS_KEY)


@pytest.mark.req("L7-13")
def test_a_certificate_is_good_for_its_alternative_names_until_it_expires() -> None:
    validity = validity_of(CHAIN)
    assert validity is not None
    assert validity.names == {"shop.example.com"}
    assert validity.ends == x509.load_pem_x509_certificate(CHAIN).not_valid_after_utc
    assert validity_of(b"nothing") is None
    assert validity_of(self_signed("2001:db8::1")[0]).names == {"2001:db8::1"}


@pytest.mark.req("L7-13")
@pytest.mark.parametrize(
    ("names", "host", "good"),
    [
        ({"a.test"}, "A.test.", True),
        ({"*.test"}, "a.test", True),
        ({"*.test"}, "b.a.test", False),
        ({"*.a.test"}, "a.test", False),
        ({"*.a.test"}, "*.a.test", True),
        (set(), "a.test", False),
    ],
)
def test_a_wildcard_covers_one_label(names: set[str], host: str, good: bool) -> None:
    assert covers(names, host) is good


def certificate_for(public: rsa.RSAPublicKey) -> bytes:
    """Certify a key that another one signs: whether it is one is not asked."""
    there = x509.load_pem_x509_certificate(CHAIN)
    builder = (
        x509.CertificateBuilder()
        .subject_name(there.subject)
        .issuer_name(there.issuer)
        .public_key(public)
        .serial_number(1)
        .not_valid_before(there.not_valid_before_utc)
        .not_valid_after(there.not_valid_after_utc)
    )
    return builder.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256()).public_bytes(Encoding.PEM)


def pem_of(numbers: rsa.RSAPrivateNumbers) -> bytes:
    key = numbers.private_key(unsafe_skip_rsa_key_validation=True)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def composite(bits: int, factor: int, *, unlike: int = 1) -> int:
    """Return an odd multiple of ``factor`` from which the parts of an RSA key can be made."""
    start = (1 << bits) // (2 * factor) * 2 * factor + factor
    numbers = count(start, 2 * factor)
    return next(each for each in numbers if math.gcd(each - 1, 65_537) == math.gcd(each, unlike) == 1)


def numbers_of(p: int, q: int) -> rsa.RSAPrivateNumbers:
    e = 65_537
    d = pow(e, -1, math.lcm(p - 1, q - 1))
    return rsa.RSAPrivateNumbers(
        p=p, q=q, d=d, dmp1=d % (p - 1), dmq1=d % (q - 1), iqmp=pow(q, -1, p),
        public_numbers=rsa.RSAPublicNumbers(e, p * q),
    )  # fmt: skip


def test_a_pair_has_its_public_key() -> None:
    assert isinstance(public_key_of(CHAIN, KEY), ec.EllipticCurvePublicKey)
    key = rsa.generate_private_key(public_exponent=65_537, key_size=2048)
    assert public_key_of(certificate_for(key.public_key()), pem_of(key.private_numbers())) == key.public_key()


@pytest.mark.parametrize(
    ("chain", "key", "problem"),
    [
        (RARE_CHAIN, RARE_KEY, "tls.crt has a key of a type that is not served"),
        (CHAIN, RARE_KEY, "tls.key has a private key of an unknown type"),
        (CHAIN * (MAX_CHAIN_BYTES // len(CHAIN) + 1), KEY, f"and {MAX_CHAIN_BYTES:,} are the most"),
        (CHAIN, KEY + b"x" * MAX_KEY_BYTES, f"and {MAX_KEY_BYTES:,} are the most"),
    ],
)
def test_what_the_library_cannot_read_or_takes_long_to_read_is_refused_in_words(
    chain: bytes, key: bytes, problem: str
) -> None:
    with pytest.raises(ValueError, match="tls") as refused:
        public_key_of(chain, key)
    assert problem in str(refused.value)


def test_an_rsa_key_with_slow_handshakes_is_rejected() -> None:
    large = rsa.RSAPublicNumbers(65_537, (1 << MAX_RSA_BITS * 2) - 1).public_key()
    with pytest.raises(ValueError, match="8,192 bits, and 4,096 are the most that is served; use one of 2,048 bits"):
        public_key_of(certificate_for(large), b"no key")


def test_no_time_is_spent_on_whether_numbers_are_prime() -> None:
    p = composite(1024, 15)
    numbers = numbers_of(p, composite(1025, 77, unlike=p))
    chain = certificate_for(numbers.public_numbers.public_key())
    assert public_key_of(chain, pem_of(numbers)).public_bytes


def test_a_damaged_rsa_key_is_found() -> None:
    key = rsa.generate_private_key(public_exponent=65_537, key_size=2048)
    good, chain = key.private_numbers(), certificate_for(key.public_key())
    for part in ("d", "dmp1", "dmq1", "iqmp"):
        fields = {each: getattr(good, each) for each in ("p", "q", "d", "dmp1", "dmq1", "iqmp", "public_numbers")}
        bad = rsa.RSAPrivateNumbers(**{**fields, part: fields[part] + 2})
        with pytest.raises(ValueError, match=r"tls\.key"):
            public_key_of(chain, pem_of(bad))


ISSUER = self_signed("issuer.example.com")[0]


@pytest.mark.req("L7-13")
@pytest.mark.parametrize(
    "text",
    [
        CHAIN.rstrip() + ISSUER,
        (CHAIN + ISSUER).replace(b"\n", b"\r"),
        b"\xef\xbb\xbf" + CHAIN + ISSUER,
        b"subject=CN\xff\n" + CHAIN + KEY + ISSUER.rstrip() + b" end",
        CHAIN.replace(b"CATE-----\n", b"CATE-----\nfrom: ca\n\n", 1) + ISSUER,
    ],
    ids=["joined", "cr", "bom", "text-and-key", "headers"],
)
def test_a_chain_is_served_in_the_form_that_every_proxy_reads(text: bytes) -> None:
    """Envoy itself rejects all of these but the fourth."""
    public_key_of(text, KEY)
    assert canonical_pem(text) == CHAIN + ISSUER


@pytest.mark.req("L7-13")
def test_a_chain_with_half_a_certificate_is_damaged() -> None:
    with pytest.raises(ValueError, match="damaged"):
        public_key_of(CHAIN + ISSUER[:200], KEY)
