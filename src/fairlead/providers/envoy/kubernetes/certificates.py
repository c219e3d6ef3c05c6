"""The certificates of the xDS server and of its proxies: their issue and renewal.

    authority ──signs──► server certificate   DNS name of the xDS Service
              ──signs──► client certificate   spiffe://fairlead/group/<group>, DNS name <group>.proxies.fairlead

Each side proves itself with the one certificate that it has, in both directions: a proxy connects to the hub
for xDS, the hub to a proxy for its statistics.

In: a moment, and what there is (PEM). Out: what there should be instead, or that it is good as it is.
An authority is replaced in two steps, so that no peer gets a certificate that it cannot check yet: its successor is
trusted first (``next``), and signs a day later; the old one stays trusted until it expires.
It never reads a clock, writes a file, or shows a key in a ``repr``.
Source: https://github.com/spiffe/spiffe/blob/main/standards/X509-SVID.md
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from urllib.parse import quote

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

TRUST_DOMAIN = "fairlead"
AUTHORITY_DAYS = 3650
LEAF_DAYS = 90
#: A leaf with less than a third of its life left is replaced: a month in which a hub may be down unnoticed.
RENEW_LEAF_DAYS = 30
RENEW_AUTHORITY_DAYS = 365
#: How long a new authority is only trusted: proxies get their Secrets within minutes, a hub after a day at the latest.
PROMOTE_AFTER = timedelta(days=1)
#: Clocks of machines differ.
_SKEW = timedelta(hours=1)
_PURPOSES = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)


class Pair(msgspec.Struct, frozen=True):
    """A certificate and its private key, as PEM."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        """Keep the key out of logs and tracebacks."""
        return "Pair(...)"


class Authority(msgspec.Struct, frozen=True):
    """The pair that signs (``current``), the one that will (``next``), and all that are trusted (PEM, newest first)."""

    current: Pair
    trusted: bytes
    next: Pair | None = None

    def __repr__(self) -> str:
        """Keep the keys out of logs and tracebacks."""
        return "Authority(...)"


def new_authority(now: datetime) -> Authority:
    """Make an authority that signs at once: for the first start only."""
    pair = _self_signed(now)
    return Authority(current=pair, trusted=pair.certificate)


def renewed_authority(authority: Authority, now: datetime) -> Authority:
    """Return what the authority should be now: the very same value when nothing is due."""
    if authority.next is not None:
        if now < _parsed(authority.next.certificate).not_valid_before_utc + _SKEW + PROMOTE_AFTER:
            return authority
        return Authority(current=authority.next, trusted=_trusted(authority, [authority.next.certificate], now))
    if _days_left(authority.current.certificate, now) >= RENEW_AUTHORITY_DAYS:
        return authority
    following = _self_signed(now)
    return msgspec.structs.replace(authority, next=following, trusted=_trusted(authority, [following.certificate], now))


def server_certificate(authority: Authority, name: str, now: datetime) -> Pair:
    """Issue the hub's certificate for the host name (or IP address) by which proxies reach it."""
    return _issued(authority, name, [_host(name)], now)


def client_certificate(authority: Authority, group: str, now: datetime) -> Pair:
    """Issue a certificate for the proxies of one group."""
    return _issued(authority, "fairlead-envoy", _names_of(group), now)


def spiffe_uri(group: str) -> str:
    """Return the URI of a group, as the xDS server reads it."""
    return f"spiffe://{TRUST_DOMAIN}/group/{quote(group, safe='')}"


def proxy_name(group: str) -> str:
    """Return the DNS name that the certificate of a group's proxies carries; none resolves it."""
    return f"{group}.proxies.{TRUST_DOMAIN}"


def server_is_good(pair: Pair, authority: Authority, name: str, now: datetime) -> bool:
    """Return whether this certificate is for ``name``, of this authority, and not to be renewed yet."""
    return _is_good(pair, authority, [_host(name)], now)


def client_is_good(pair: Pair, authority: Authority, group: str, now: datetime) -> bool:
    """Return whether this certificate is for ``group``, of this authority, and not to be renewed yet."""
    return _is_good(pair, authority, _names_of(group), now)


def renew_in_s(certificate: bytes, now: datetime) -> float:
    """Return in how many seconds a certificate is to be renewed; 0 when it is due."""
    due = _parsed(certificate).not_valid_after_utc - timedelta(days=RENEW_LEAF_DAYS)
    return max(0.0, (due - now).total_seconds())


def is_authority(authority: Authority) -> bool:
    """Return whether these are certificates and keys that belong together."""
    pairs = [authority.current, *([authority.next] if authority.next is not None else [])]
    try:
        x509.load_pem_x509_certificates(authority.trusted)
        return all(_belong_together(pair) for pair in pairs)
    except ValueError:
        return False


def _is_good(pair: Pair, authority: Authority, names: Sequence[x509.GeneralName], now: datetime) -> bool:
    try:
        certificate = _parsed(pair.certificate)
        carried = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        purposes = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        certificate.verify_directly_issued_by(_parsed(authority.current.certificate))
        fit = all(name in carried for name in names) and all(purpose in purposes for purpose in _PURPOSES)
        return fit and _belong_together(pair) and _days_left(pair.certificate, now) >= RENEW_LEAF_DAYS
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return False


def _belong_together(pair: Pair) -> bool:
    key = serialization.load_pem_private_key(pair.key, password=None)
    return key.public_key() == _parsed(pair.certificate).public_key()


def _self_signed(now: datetime) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    # The serial number in the name: two authorities that are trusted at the same time differ in it.
    serial = x509.random_serial_number()
    name = _name(f"fairlead-xds-ca-{serial:x}"[:60])
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    builder = _builder(name, name, key.public_key(), now, AUTHORITY_DAYS, serial)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(usage, critical=True)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    return _pair(builder.sign(key, hashes.SHA256()), key)


def _issued(authority: Authority, name: str, names: Sequence[x509.GeneralName], now: datetime) -> Pair:
    issuer = _parsed(authority.current.certificate)
    signer = serialization.load_pem_private_key(authority.current.key, password=None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise TypeError("the authority's key is not an elliptic curve key")
    key = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    builder = _builder(_name(name[:64]), issuer.subject, key.public_key(), now, LEAF_DAYS, serial)
    builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage(_PURPOSES), critical=False)
    identifier = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False
    )
    return _pair(builder.sign(signer, hashes.SHA256()), key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, days: int, serial: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(serial)
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + timedelta(days=days))
    )


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    pem = serialization.Encoding.PEM
    plain = serialization.NoEncryption()
    return Pair(certificate.public_bytes(pem), key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))


def _trusted(authority: Authority, first: Iterable[bytes], now: datetime) -> bytes:
    """Put new certificates in front, once each, and leave out what has expired."""
    pem = serialization.Encoding.PEM
    before = [certificate.public_bytes(pem) for certificate in x509.load_pem_x509_certificates(authority.trusted)]
    unique = dict.fromkeys([*first, *before])
    return b"".join(certificate for certificate in unique if _parsed(certificate).not_valid_after_utc > now)


def _days_left(certificate: bytes, now: datetime) -> float:
    return (_parsed(certificate).not_valid_after_utc - now) / timedelta(days=1)


def _parsed(pem: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _names_of(group: str) -> Sequence[x509.GeneralName]:
    return x509.UniformResourceIdentifier(spiffe_uri(group)), x509.DNSName(proxy_name(group))


def _host(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
