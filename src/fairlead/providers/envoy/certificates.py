"""The certificates of the xDS server and of its proxies: their issue, their renewal, and the Secrets that have them.

    authority ──signs──► server certificate   DNS name of the xDS Service
              ──signs──► client certificate   spiffe://fairlead/group/<group>, DNS name <group>.proxies.fairlead
              ──signs──► machine certificate  spiffe://fairlead/proxy-machine/group/machine%3A<name>, for its own key

    Secret fairlead-xds-ca      tls.crt, tls.key    the authority that signs    ca.crt  all that are trusted
                                next.crt, next.key  the one that will sign next
    Secret fairlead-xds-server  tls.crt, tls.key, ca.crt

Each side proves itself with one certificate, in both directions: a proxy connects to the hub for xDS, the hub to a
proxy for its statistics. An authority is replaced in two steps, so that no peer gets a certificate that it cannot check
yet: its successor is trusted first (``next``), and signs a day later; the old one stays trusted until it expires.

The first replica *creates* the shared Secrets: the API server lets one of two succeed, and the other reads. From then
on only the leader changes them, in time before they expire, and all replicas read them again every minute. The leader
also writes the client certificate of each group of proxies into a Secret of the group's namespace. Never: logs or shows
a key, overwrites an authority that cannot be read, writes a valid certificate again, or lists Secrets.
Source: https://github.com/spiffe/spiffe/blob/main/standards/X509-SVID.md
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import msgspec
import structlog
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from msgspec.structs import replace

from fairlead.api.kubernetes import SECRETS, Secret
from fairlead.api.meta import JSONObject
from fairlead.api.names import LABEL_MANAGED_BY, MANAGED_BY, MANAGER_HUB, SYSTEM_NAMESPACE
from fairlead.errors import AlreadyExists, BadConfiguration, FairleadError, NotFound, Terminal
from fairlead.kube.cluster import Cluster
from fairlead.model.keys import machine_of, node_group
from fairlead.providers.envoy.fleet import ServerCertificate, group_from_spiffe
from fairlead.providers.envoy.kubernetes.manifests import ManifestRef
from fairlead.runtime.clock import Clock
from fairlead.runtime.loop import run_workers
from fairlead.runtime.queue import KeyedQueue

TRUST_DOMAIN = "fairlead"
AUTHORITY_DAYS = 3650
LEAF_DAYS = 90
#: A leaf with less than a third of its life left is replaced: a month in which a hub may be down unnoticed.
RENEW_LEAF_DAYS = 30
RENEW_AUTHORITY_DAYS = 365
#: How long a new authority is only trusted: proxies get their Secrets within minutes, a hub after a day at the latest.
PROMOTE_AFTER = timedelta(days=1)
#: Tolerance for clocks of machines that differ.
_SKEW = timedelta(hours=1)
_PURPOSES = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)

_PublicKey = ec.EllipticCurvePublicKey | rsa.RSAPublicKey


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


def renewed_authority(authority: Authority, now: datetime, *, trusted_by_all: bool = True) -> Authority:
    """Return what the authority should be now: the very same value when nothing is due.

    ``trusted_by_all``: each client has ``authority.trusted``. The next one waits for that while the present one lives.
    """
    if authority.next is not None:
        if now < _parsed(authority.next.certificate).not_valid_before_utc + _SKEW + PROMOTE_AFTER:
            return authority
        if not trusted_by_all and _days_left(authority.current.certificate, now) >= RENEW_LEAF_DAYS:
            return authority
        return Authority(current=authority.next, trusted=_trusted(authority, [authority.next.certificate], now))
    if _days_left(authority.current.certificate, now) >= RENEW_AUTHORITY_DAYS:
        return authority
    following = _self_signed(now)
    return replace(authority, next=following, trusted=_trusted(authority, [following.certificate], now))


def server_certificate(authority: Authority, names: Sequence[str], now: datetime) -> Pair:
    """Issue the hub's certificate for the host names (or IP addresses) by which proxies reach it."""
    return _issued(authority, names[0], list(map(_host, names)), now)


def client_certificate(authority: Authority, group: str, now: datetime) -> Pair:
    """Issue a certificate for the proxies of one group."""
    return _issued(authority, "fairlead-envoy", _names_of(group), now)


class SignedKey(NamedTuple):
    """A certificate for the key of a proxy machine, as PEM."""

    certificate: bytes
    serial: str
    expires: datetime


def machine_certificate(
    authority: Authority, machine: str, request: bytes, now: datetime, *, life: timedelta
) -> SignedKey:
    """Issue a certificate for the key in a certificate request (PEM); names in the request do not count.

    Raises:
        ValueError: the text is not a certificate request, or is not signed with its own key.
    """
    parsed = x509.load_pem_x509_csr(request)
    key = parsed.public_key()
    if not parsed.is_signature_valid or not isinstance(key, ec.EllipticCurvePublicKey | rsa.RSAPublicKey):
        raise ValueError("not signed with its own key, which has to be an elliptic curve or an RSA key")
    # The xDS server reads the group of the machine in it.
    uri = f"spiffe://{TRUST_DOMAIN}/proxy-machine/group/{quote(node_group(machine), safe='')}"
    names = [x509.UniformResourceIdentifier(uri)]
    expires = now + life
    leaf = _leaf(authority, machine, names, key, now, expires, [ExtendedKeyUsageOID.CLIENT_AUTH])
    return SignedKey(leaf.public_bytes(serialization.Encoding.PEM), f"{leaf.serial_number:x}", expires)


class ShownCertificate(NamedTuple):
    """What identifies the certificate that a machine shows: its serial number, and when it was signed."""

    serial: str
    signed: datetime


def shown_certificate(certificate: bytes) -> ShownCertificate:
    """Read a certificate (PEM or DER)."""
    pem = certificate.startswith(b"-----")
    parsed = _parsed(certificate) if pem else x509.load_der_x509_certificate(certificate)
    return ShownCertificate(f"{parsed.serial_number:x}", parsed.not_valid_before_utc + _SKEW)


def machine_named_in(uris: Iterable[str]) -> str:
    """Return the machine that one of the URIs of a verified certificate names; empty when none does."""
    ours = (uri for uri in uris if uri.startswith(f"spiffe://{TRUST_DOMAIN}/proxy-machine/"))
    return next(filter(None, (machine_of(group_from_spiffe(uri)) for uri in ours)), "")


def spiffe_uri(group: str) -> str:
    """Return the URI of a group, as the xDS server reads it."""
    return f"spiffe://{TRUST_DOMAIN}/group/{quote(group, safe='')}"


def proxy_name(group: str) -> str:
    """Return the DNS name that the certificate of a group's proxies carries; none resolves it."""
    return f"{group}.proxies.{TRUST_DOMAIN}"


def server_is_good(pair: Pair, authority: Authority, names: Sequence[str], now: datetime) -> bool:
    """Return whether this certificate is for all of ``names``, of this authority, and not to be renewed yet."""
    return _is_good(pair, authority, [_host(name) for name in names], now)


def client_is_good(pair: Pair, authority: Authority, group: str, now: datetime) -> bool:
    """Return whether this certificate is for ``group``, of this authority, and not to be renewed yet."""
    return _is_good(pair, authority, _names_of(group), now)


def renew_in_s(certificate: bytes, now: datetime) -> float:
    """Return the number of seconds until a certificate is to be renewed; 0 when it is due."""
    due = _parsed(certificate).not_valid_after_utc - timedelta(days=RENEW_LEAF_DAYS)
    return max(0.0, (due - now).total_seconds())


def is_authority(authority: Authority) -> bool:
    """Return whether these are certificates and keys that belong together."""
    try:
        x509.load_pem_x509_certificates(authority.trusted)
        return all(_belong_together(pair) for pair in (authority.current, authority.next) if pair is not None)
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
    builder = (
        _builder(name, name, key.public_key(), now, now + timedelta(days=AUTHORITY_DAYS), serial)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _pair(builder.sign(key, hashes.SHA256()), key)


def _issued(authority: Authority, name: str, names: Sequence[x509.GeneralName], now: datetime) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    expires = now + timedelta(days=LEAF_DAYS)
    return _pair(_leaf(authority, name, names, key.public_key(), now, expires, _PURPOSES), key)


def _leaf(
    authority: Authority,
    name: str,
    names: Sequence[x509.GeneralName],
    key: _PublicKey,
    now: datetime,
    expires: datetime,
    purposes: Sequence[x509.ObjectIdentifier],
) -> x509.Certificate:
    issuer = _parsed(authority.current.certificate)
    signer = serialization.load_pem_private_key(authority.current.key, password=None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise TypeError("the authority's key is not an elliptic curve key")
    identifier = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return (
        _builder(_name(name[:64]), issuer.subject, key, now, expires, x509.random_serial_number())
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .sign(signer, hashes.SHA256())
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: _PublicKey, now: datetime, expires: datetime, serial: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(serial)
        .not_valid_before(now - _SKEW)
        .not_valid_after(expires)
    )


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    pem = serialization.Encoding.PEM
    plain = serialization.NoEncryption()
    return Pair(certificate.public_bytes(pem), key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))


def _trusted(authority: Authority, first: Iterable[bytes], now: datetime) -> bytes:
    """Put new certificates in front, without duplicates, and drop expired ones."""
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


AUTHORITY_SECRET = "fairlead-xds-ca"  # noqa: S105 - a name
SERVER_SECRET = "fairlead-xds-server"  # noqa: S105 - a name

#: The content of a Secret by key.
Data = Mapping[str, bytes]


def secret_manifest(namespace: str, name: str, data: Data, labels: Mapping[str, str] | None = None) -> JSONObject:
    """Build a Secret of ours; ``labels`` are added to the one that marks it."""
    return {
        "metadata": {"namespace": namespace, "name": name, "labels": {LABEL_MANAGED_BY: MANAGED_BY, **(labels or {})}},
        "type": "kubernetes.io/tls",
        "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
    }


def data_of(secret: Secret) -> dict[str, bytes]:
    """Decode a Secret; invalid base64 counts as empty."""
    data: dict[str, bytes] = {}
    for key, value in (secret.data or {}).items():
        try:
            data[key] = base64.b64decode(value, validate=True)
        except binascii.Error:
            data[key] = b""
    return data


def pair_data(pair: Pair, trusted: bytes) -> dict[str, bytes]:
    """Return the data of a Secret with a certificate, its key, and the authorities that its owner trusts."""
    return {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": trusted}


def pair_of(data: Data) -> Pair:
    """Return the certificate and key of a Secret's data; empty ones where they are missing."""
    return Pair(data.get("tls.crt", b""), data.get("tls.key", b""))


def authority_data(authority: Authority) -> dict[str, bytes]:
    """Return the data of the authority's Secret."""
    data = pair_data(authority.current, authority.trusted)
    if authority.next is not None:
        data |= {"next.crt": authority.next.certificate, "next.key": authority.next.key}
    return data


def authority_of(data: Data) -> Authority:
    """Return the authority of a Secret's data; ``BadConfiguration`` if the data is invalid."""
    following = Pair(data["next.crt"], data["next.key"]) if data.get("next.crt") and data.get("next.key") else None
    current = pair_of(data)
    authority = Authority(current=current, trusted=data.get("ca.crt") or current.certificate, next=following)
    if not is_authority(authority):
        raise BadConfiguration(
            f"Secret {SYSTEM_NAMESPACE}/{AUTHORITY_SECRET} holds no certificate with its key (tls.crt, tls.key in "
            "PEM). Restore the Secret, or delete it: then all proxies get new certificates"
        )
    return authority


_REFRESH_S = 60.0

log = structlog.get_logger(__name__)


class SharedAuthority:
    """The certificates that all replicas share.

    ``server_names`` are the hosts by which proxies reach the hub. ``own_server``: each replica has other names, and so
    a server certificate of its own, which only its files hold. ``trusted_by_all`` returns whether all clients that
    do not read the Secrets trust these certificates (PEM).
    """

    def __init__(
        self,
        *,
        cluster: Cluster,
        data_dir: Path,
        server_names: Sequence[str],
        clock: Clock,
        leading: Callable[[], bool],
        own_server: bool = False,
        trusted_by_all: Callable[[bytes], bool] = lambda _trusted: True,
    ) -> None:
        self._cluster = cluster
        self._trusted_by_all = trusted_by_all
        self._directory = TlsDirectory(data_dir=data_dir)
        self._server_names = server_names
        self._own: Data | None = {} if own_server else None
        self._clock = clock
        self._leading = leading
        self._authority: Authority | None = None
        self._changed: list[Callable[[], None]] = []

    @property
    def authority(self) -> Authority:
        """Return the authority, once started."""
        if self._authority is None:
            raise BadConfiguration("the hub's authority has not been read yet")
        return self._authority

    @property
    def files(self) -> ServerCertificate:
        """Return where the xDS server finds its certificate, now and after each renewal."""
        return self._directory.files

    def on_change(self, call: Callable[[], None]) -> None:
        """Register a callback for changes of the certificates that clients need."""
        self._changed.append(call)

    async def start(self) -> None:
        """Read the certificates, or make them when there are none.

        Raises:
            BadConfiguration: the authority's Secret holds something else, or the files cannot be written.
            FairleadError: the hub's API refuses.
        """
        now = self._clock.now()
        authority = await self._read_or_create(AUTHORITY_SECRET, lambda: authority_data(new_authority(now)))
        self._take(authority_of(authority))
        if self._own is None:
            server = await self._read_or_create(SERVER_SECRET, lambda: self._server_data(self.authority))
        else:
            server = await self._refresh_server()
        self._directory.write(server)

    async def run(self) -> None:
        """Keep the certificates fresh until cancelled; retry failures after a minute."""
        while True:
            await self._clock.sleep(_REFRESH_S)
            await self.refresh()

    async def refresh(self) -> None:
        """Read both Secrets once and, as the leader, renew what is due; problems are logged."""
        try:
            self._take(await self._refresh_authority())
            self._directory.write(await self._refresh_server())
        except FairleadError as error:
            log.warning("certificates not refreshed", sentence=error.sentence)

    async def _refresh_authority(self) -> Authority:
        try:
            authority = authority_of(await self._read(AUTHORITY_SECRET))
        except NotFound:
            if not self._leading():
                raise
            # The Secret was deleted; the authority in memory is still what all proxies trust.
            authority = self.authority
            await self._apply(AUTHORITY_SECRET, authority_data(authority))
        trusted_by_all = self._trusted_by_all(authority.trusted)
        due = renewed_authority(authority, self._clock.now(), trusted_by_all=trusted_by_all)
        if due is authority or not self._leading():
            return authority
        log.info("xDS authority renewed")
        await self._apply(AUTHORITY_SECRET, authority_data(due))
        return due

    async def _refresh_server(self) -> Data:
        if self._own is not None:
            self._own = self._own if self._is_fresh(self._own) else self._server_data(self.authority)
            return self._own
        try:
            data = await self._read(SERVER_SECRET)
        except NotFound:
            data = {}
        if self._is_fresh(data) or not self._leading():
            return data
        log.info("xDS server certificate renewed")
        data = self._server_data(self.authority)
        await self._apply(SERVER_SECRET, data)
        return data

    def _is_fresh(self, data: Data) -> bool:
        good = server_is_good(pair_of(data), self.authority, self._server_names, self._clock.now())
        return good and data.get("ca.crt") == self.authority.trusted

    def _server_data(self, authority: Authority) -> Data:
        pair = server_certificate(authority, self._server_names, self._clock.now())
        return pair_data(pair, authority.trusted)

    def _take(self, authority: Authority) -> None:
        if authority == self._authority:
            return
        self._authority = authority
        for call in self._changed:
            call()

    # --- Secrets ----------------------------------------------------------------------------------------------

    async def _read(self, name: str) -> Data:
        return data_of(await self._cluster.get(SECRETS, SYSTEM_NAMESPACE, name))

    async def _read_or_create(self, name: str, make: Callable[[], Data]) -> Data:
        try:
            return await self._read(name)
        except NotFound:
            pass
        data = make()
        try:
            await self._cluster.create(SECRETS, secret_manifest(SYSTEM_NAMESPACE, name, data))
        except AlreadyExists:
            return await self._read(name)
        return data

    async def _apply(self, name: str, data: Data) -> None:
        await self._cluster.apply(SECRETS, secret_manifest(SYSTEM_NAMESPACE, name, data), manager=MANAGER_HUB)


class TlsDirectory:
    """The certificate files below ``data_dir``."""

    def __init__(self, *, data_dir: Path) -> None:
        self._dir = data_dir / "xds-tls"
        self._written: Data = {}

    @property
    def files(self) -> ServerCertificate:
        """Return where the xDS server finds its certificate, now and after each renewal."""
        here = self._dir / "current"
        return ServerCertificate(certificate=here / "tls.crt", key=here / "tls.key", client_ca=here / "ca.crt")

    def write(self, data: Data) -> None:
        """Replace the files, all at once; ``BadConfiguration`` when the directory cannot be written."""
        if data == self._written or not data:
            return
        digest = blake2b(b"\0".join(data[name] for name in sorted(data)), digest_size=8).hexdigest()
        directory, link = self._dir / digest, self._dir / "next"
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            for name, content in data.items():
                file = directory / name
                file.touch(mode=0o600)
                file.write_bytes(content)
            link.unlink(missing_ok=True)
            link.symlink_to(digest)
            link.replace(self._dir / "current")
            for old in self._dir.iterdir():
                if old.is_dir() and not old.is_symlink() and old != directory:
                    shutil.rmtree(old, ignore_errors=True)
        except OSError as error:
            raise BadConfiguration(
                f"--data-dir: the xDS certificate cannot be kept in {self._dir} ({error.strerror}); "
                "make the directory writable or choose another"
            ) from error
        self._written = dict(data)


#: A Secret is read again at least this often: it may have been deleted or damaged.
_CHECK_S = 600.0
_REFUSED_S = 60.0


class _Wanted(msgspec.Struct, frozen=True):
    group: str
    labels: Mapping[str, str]


class ClientCertificates:
    """Keeps one Secret for each group."""

    def __init__(self, *, cluster: Cluster, shared: SharedAuthority, clock: Clock, leading: Callable[[], bool]) -> None:
        self._cluster = cluster
        self._shared = shared
        self._clock = clock
        self._leading = leading
        self._wanted: dict[ManifestRef, _Wanted] = {}
        self._queue: KeyedQueue[ManifestRef] = KeyedQueue(clock=clock)
        shared.on_change(self.reconcile_all)

    def want(self, ref: ManifestRef, group: str, labels: Mapping[str, str]) -> None:
        """Keep a certificate of ``group`` in the Secret ``ref`` from now on."""
        wanted = _Wanted(group, dict(labels))
        if self._wanted.get(ref) != wanted:
            self._wanted[ref] = wanted
            self._queue.add(ref)

    def forget(self, ref: ManifestRef) -> None:
        """Stop keeping the Secret ``ref``."""
        self._wanted.pop(ref, None)

    def reconcile_all(self) -> None:
        """Check all Secrets now, because this replica leads or the authority has changed."""
        for ref in self._wanted:
            self._queue.add(ref)

    async def run(self) -> None:
        """Work until cancelled."""
        await run_workers(self._queue, self._reconcile, workers=4, name="client-certificate")

    async def _reconcile(self, ref: ManifestRef) -> float | None:
        wanted = self._wanted.get(ref)
        if wanted is None or not self._leading():
            return None
        try:
            return await self._renew(ref, wanted)
        except Terminal as error:
            log.warning("no client certificate", group=wanted.group, sentence=error.sentence)
            return _REFUSED_S

    async def _renew(self, ref: ManifestRef, wanted: _Wanted) -> float:
        authority, now = self._shared.authority, self._clock.now()
        try:
            data = data_of(await self._cluster.get(SECRETS, ref.namespace, ref.name))
        except NotFound:
            data = {}
        pair = pair_of(data)
        if not client_is_good(pair, authority, wanted.group, now) or data.get("ca.crt") != authority.trusted:
            pair = client_certificate(authority, wanted.group, now)
            data = pair_data(pair, authority.trusted)
            manifest = secret_manifest(ref.namespace, ref.name, data, wanted.labels)
            await self._cluster.apply(SECRETS, manifest, manager=MANAGER_HUB)
            log.info("client certificate issued", group=wanted.group)
            if ref not in self._wanted:
                # The group was deleted while we wrote.
                try:
                    await self._cluster.delete(SECRETS, ref.namespace, ref.name)
                except FairleadError as error:
                    log.warning("a client certificate is left behind", name=ref.name, sentence=error.sentence)
        return min(_CHECK_S, renew_in_s(pair.certificate, now) + 1.0)
