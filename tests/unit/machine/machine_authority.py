"""An authority that signs what machines ask for, and certificates of hubs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """One authority; ``ca`` is its certificate."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")])
        own = self._builder(self._name, self._key.public_key())
        own = own.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        self.ca = own.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()

    def sign(self, csr: str) -> str:
        """Sign a request; return the certificate."""
        request = x509.load_pem_x509_csr(csr.encode())
        signed = self._builder(request.subject, request.public_key()).sign(self._key, hashes.SHA256())
        return signed.public_bytes(serialization.Encoding.PEM).decode()

    def hub(self, name: str, *, begins: timedelta = -timedelta(hours=1)) -> str:
        """Return certificate and key of a server with this name; ``begins``: from now on, when it becomes valid."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hub")]), key.public_key(), begins)
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        plain = serialization.NoEncryption()
        pem = serialization.Encoding.PEM
        private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
        return (builder.sign(self._key, hashes.SHA256()).public_bytes(pem) + private).decode()

    def _builder(
        self, subject: x509.Name, public: object, begins: timedelta = -timedelta(hours=1)
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(self._name)
        builder = builder.public_key(public).serial_number(x509.random_serial_number())  # pyright: ignore[reportArgumentType]
        return builder.not_valid_before(now + begins).not_valid_after(now + timedelta(days=1))
