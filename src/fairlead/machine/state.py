"""The state directory of a proxy machine: all that it needs to serve without a hub.

    machine.json    its name, its hubs, when its certificate is to be renewed, and the machine that has joined
    identity.pem    its certificate and private key, in one file: one never without the other
    ca.pem          the authorities that it trusts
    plan.json       the last plan; its time is when a hub answered last
    forwarding.json the last table of load balancers that the kernel forwards
    xds-snapshot    what Envoy has acknowledged       xds.sock    where Envoy connects to
    envoy/          Envoy's files                     lock        held while ``fairlead proxy run`` runs

All files are private and replaced as a whole. A directory that was copied to another machine is refused: two machines
with one identity would announce the same addresses.
"""

from __future__ import annotations

import os
import ssl
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import grpc
import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fairlead.api.json_text import read_json
from fairlead.errors import BadConfiguration
from fairlead.model.machine import EnrolAnswer, MachinePlan, fingerprint_of
from fairlead.runtime.private_file import DirectoryLock, write_private
from fairlead.runtime.tls import client_context

_MACHINE_ID = Path("/etc/machine-id")
_LOCKS = Path("/proc/locks")
#: Addresses of hubs that are kept, those of now first.
_MOST_HUBS = 16
_JOIN = "join it with a token of its own: fairlead proxy token, at the hub, prints the command"


class Enrolment(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Who this machine is at which hubs, and on which machine it has joined."""

    machine: str
    hubs: tuple[str, ...]
    machine_id: str
    host_name: str
    #: Seconds since 1970.
    renew_at: float


class NewKey:
    """A private key that never leaves this machine, and the request for its certificate."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
        request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(self._key, hashes.SHA256())
        self.csr = request.public_bytes(serialization.Encoding.PEM).decode()

    def with_certificate(self, certificate: str) -> str:
        """Return certificate and key as PEM.

        Raises:
            BadConfiguration: the certificate is not one of this key.
        """
        try:
            public = x509.load_pem_x509_certificate(certificate.encode()).public_key()
        except ValueError as error:
            raise BadConfiguration("the hub has answered with something else than a certificate") from error
        if public != self._key.public_key():
            raise BadConfiguration("the hub has answered with a certificate of another key; try again")
        plain = serialization.NoEncryption()
        key = self._key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
        return certificate.rstrip("\n") + "\n" + key.decode()


class StateDirectory:
    """The files of one machine."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.socket = self.path / "xds.sock"
        self.snapshot = self.path / "xds-snapshot"
        self.envoy = self.path / "envoy"
        self._machine = self.path / "machine.json"
        self._identity = self.path / "identity.pem"
        self._ca = self.path / "ca.pem"
        self._plan = self.path / "plan.json"
        self.forwarding = self.path / "forwarding.json"
        self._lock = DirectoryLock(
            self.path,
            option="--state-dir",
            name="lock",
            unusable="run as root, or name another directory",
            taken=f"another fairlead proxy runs in {self.path}; stop it first (systemctl stop fairlead-proxy)",
        )

    def take(self) -> None:
        """Make the directory if it is missing, and lock it for the life of this process.

        Raises:
            BadConfiguration: it cannot be used, or another process has it.
        """
        self._lock.take()

    def release(self) -> None:
        """Let the next process have the directory."""
        self._lock.release()

    def running_pid(self) -> int:
        """Return the process that has locked the directory; 0 when none runs."""
        lock = self.path / "lock"
        with suppress(OSError, ValueError):
            pid, inode = int(lock.read_text(encoding="ascii")), lock.stat().st_ino
            # To try the lock would keep a process from its start for that moment.
            for line in _LOCKS.read_text(encoding="ascii").splitlines():
                fields = line.split()
                if fields[4] == str(pid) and fields[5].rpartition(":")[2] == str(inode):
                    return pid
        return 0

    @property
    def has_joined(self) -> bool:
        """Return whether a machine has joined from here."""
        return self._machine.exists()

    def load(self) -> Enrolment:
        """Return the enrolment of this machine.

        Raises:
            BadConfiguration: there is none, it is damaged, or it is that of another machine.
        """
        try:
            enrolment = read_json(self._machine.read_bytes(), Enrolment)
        except FileNotFoundError as error:
            raise BadConfiguration(
                f"this machine has not joined a hub ({self._machine} is missing); {_JOIN}"
            ) from error
        except OSError as error:
            raise BadConfiguration(f"{self._machine} cannot be read ({error.strerror}); run as root") from error
        if enrolment is None:
            raise BadConfiguration(f"{self._machine} is damaged; restore it, or delete {self.path} and {_JOIN}")
        here = Enrolment(machine="", hubs=(), machine_id=_machine_id(), host_name=_host_name(), renew_at=0)
        if (enrolment.machine_id, enrolment.host_name) != (here.machine_id, here.host_name):
            raise BadConfiguration(
                f"{self.path} belongs to proxy machine {enrolment.machine!r} on host {enrolment.host_name!r}, and this "
                f"is host {here.host_name!r} or a copy of it. Delete the directory here, and {_JOIN}"
            )
        return enrolment

    def store(self, answer: EnrolAnswer, key: NewKey, *, hubs: tuple[str, ...], now: float) -> Enrolment:
        """Keep a new certificate; authorities first, so that it is never without them.

        Raises:
            BadConfiguration: the answer is not usable, or the files cannot be written.
        """
        identity = key.with_certificate(answer.certificate)
        enrolment = Enrolment(
            machine=answer.machine,
            # Where this machine has joined may be an address that the hub does not know, such as that of a gateway.
            hubs=tuple(dict.fromkeys((*answer.hubs, *hubs)))[:_MOST_HUBS],
            machine_id=_machine_id(),
            host_name=_host_name(),
            renew_at=now + answer.renew_after_s,
        )
        try:
            write_private(self._ca, answer.ca)
            write_private(self._identity, identity)
            write_private(self._machine, msgspec.json.format(msgspec.json.encode(enrolment), indent=1))
        except OSError as error:
            raise BadConfiguration(f"{self.path} cannot be written ({error.strerror})") from error
        return enrolment

    def store_authorities(self, ca: str) -> bool:
        """Keep the authorities that the hub trusts now; return whether they are others than before.

        Raises:
            BadConfiguration: these are not certificates, or the file cannot be written.
        """
        try:
            if self._ca.read_text(encoding="ascii") == ca:
                return False
            client_context(ca.encode())
            write_private(self._ca, ca)
        except OSError as error:  # SSLError is one
            raise BadConfiguration(f"the authorities of the hub cannot be kept in {self._ca} ({error})") from error
        return True

    def tls(self) -> ssl.SSLContext:
        """Return the context of HTTPS to the hub, with the certificate of this machine.

        Raises:
            BadConfiguration: the files are missing or damaged.
        """
        try:
            context = client_context(self._ca.read_bytes())
            context.load_cert_chain(self._identity)
        except (OSError, ssl.SSLError) as error:  # SSLError is an OSError
            raise BadConfiguration(f"the certificate in {self.path} cannot be used ({error}); {_JOIN}") from error
        return context

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """Return the same for gRPC."""
        identity = self._identity.read_bytes()
        return grpc.ssl_channel_credentials(self._ca.read_bytes(), private_key=identity, certificate_chain=identity)

    def authorities(self) -> str:
        """Return the fingerprint of the authorities that this machine trusts; empty when they cannot be read."""
        try:
            return fingerprint_of(self._ca.read_text(encoding="ascii"))
        except OSError:
            return ""

    def certificate_expires(self) -> datetime:
        """Return when the certificate expires."""
        return x509.load_pem_x509_certificate(self._identity.read_bytes()).not_valid_after_utc

    def load_plan(self) -> MachinePlan | None:
        """Return the last plan; None when there was none, or it cannot be read."""
        try:
            return read_json(self._plan.read_bytes(), MachinePlan)
        except OSError:
            return None

    def store_plan(self, plan: MachinePlan) -> None:
        """Keep a plan; it has passwords of routers."""
        write_private(self._plan, msgspec.json.encode(plan))

    def hub_answered(self) -> None:
        """Note that the plan is the hub's as of now."""
        if self._plan.exists():
            os.utime(self._plan)

    def last_answer(self) -> datetime | None:
        """Return when a hub answered last; None when none has."""
        try:
            return datetime.fromtimestamp(self._plan.stat().st_mtime, UTC)
        except OSError:
            return None


def _machine_id() -> str:
    try:
        return _MACHINE_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _host_name() -> str:
    return os.uname().nodename
