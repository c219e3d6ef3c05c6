"""The secrets that a load balancer needs, and those of them that can be used.

In: the configuration. Out: secrets by name, the usable certificates of each listener and backend, and what is wrong
with the rest. A certificate that was replaced by an unusable one, or deleted in use, is served on as it was: a
handshake with the last good one is better than none. It is reported as refused all the same.
"""

from __future__ import annotations

from collections.abc import Callable

from cryptography.hazmat.primitives.asymmetric import ec, rsa

from fairlead.model.http import Backend, Certificate, L7Config, L7Listener
from fairlead.model.key_pair import canonical_pem, public_key_of
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import RefusedPart
from fairlead.providers.envoy.http.names import backend_authority_name, certificate_name, client_authority_name, normal
from fairlead.providers.envoy.resources import EncodedResource, ResourceType, Schema, encoded_resource

#: The longest server name (SNI) that Envoy accepts.
_MAX_SERVER_NAME = 255
_TERMINATES = frozenset({"HTTPS", "TLS"})


class EnvoySecrets:
    """The secrets of one load balancer."""

    def __init__(self, schema: Schema, key: LoadBalancerKey) -> None:
        self.resources: dict[str, EncodedResource] = {}
        self._problems: dict[tuple[str, str], str] = {}
        self._schema = schema
        self._key = key
        self._good: dict[str, Certificate] = {}
        #: The problem of each bundle of authorities ("" for none), and of those that were in use until now.
        self._bundles: dict[str, str] = {}
        self._bundles_before: dict[str, str] = {}
        self._encoded: dict[str, tuple[object, EncodedResource]] = {}

    @property
    def refused(self) -> list[RefusedPart]:
        """Return the certificates, listeners and backends that cannot be used, with the reason."""
        return [RefusedPart(*part, problem) for part, problem in self._problems.items()]

    def update(self, config: L7Config) -> None:
        """Take over a configuration; the secrets that it needs are filled in by the calls below."""
        used = {name for listener in config.listeners for name in listener.certificates}
        used |= {backend.tls.client_certificate for backend in config.backends if backend.tls is not None}
        used.discard("")
        self._problems, self.resources = {}, {}
        self._bundles, self._bundles_before = {}, self._bundles
        good: dict[str, Certificate] = {}
        for name in sorted(used):
            new, known = config.certificates.get(name), self._good.get(name)
            if new is not None and new == known:
                good[name] = new  # looked at before
                continue
            problem = "there is no such Secret" if new is None else invalid_certificate(new)
            if new is not None and not problem:
                good[name] = new
                continue
            if known is not None:
                good[name] = known
                problem += "; the last good one is served on"
            self._problems["certificate", name] = problem
        self._good = good

    def drop_unused(self) -> None:
        """Drop certificates that are no longer used; call this once all have been requested."""
        self._encoded = {name: self._encoded[name] for name in self.resources}

    def of_listener(self, listener: L7Listener) -> tuple[str, ...] | None:
        """Return the usable certificates of a terminating listener; None when it cannot be served."""
        if listener.protocol not in _TERMINATES or listener.passthrough:
            return ()
        usable = tuple(name for name in dict.fromkeys(listener.certificates) if self._certificate(name))
        if not usable:
            self._problems.setdefault(("listener", listener.name), "no usable certificate")
            return None
        validation = listener.client_validation
        if validation is not None:
            problem = self._invalid_bundle(validation.ca_bundle)
            if problem:
                self._problems["listener", listener.name] = f"the authorities of its clients: {problem}"
                return None
            self._authority(
                client_authority_name(self._key, listener.port, normal(listener.hostname)), validation.ca_bundle
            )
        return usable

    def of_backend(self, backend: Backend) -> tuple[str, str] | None:
        """Return the names of the secrets of a backend (its client certificate, its authorities); None: unusable."""
        tls = backend.tls
        if tls is None:
            return "", ""
        if len(tls.server_name.encode()) > _MAX_SERVER_NAME:
            self._problems["backend", backend.name] = f"the server name is longer than {_MAX_SERVER_NAME} bytes"
            return None
        certificate = ""
        if tls.client_certificate:
            if not self._certificate(tls.client_certificate):
                self._problems["backend", backend.name] = "the client certificate cannot be used"
                return None
            certificate = certificate_name(self._key, tls.client_certificate)
        if tls.system_ca and not tls.ca_bundle:
            return certificate, ""
        problem = self._invalid_bundle(tls.ca_bundle)
        if problem:
            self._problems["backend", backend.name] = f"the authorities of its certificate: {problem}"
            return None
        name = backend_authority_name(self._key, backend.name)
        self._authority(name, tls.ca_bundle)
        return certificate, name

    def _invalid_bundle(self, bundle: str) -> str:
        """Return the error in a bundle, cached while it is in use: it may have 256 KiB."""
        current = self._bundles.get(bundle)
        if current is None:
            before = self._bundles_before.get(bundle)
            current = self._bundles[bundle] = invalid_bundle(bundle) if before is None else before
        return current

    def _certificate(self, certificate: str) -> bool:
        good = self._good.get(certificate)
        if good is None:
            return False
        name = certificate_name(self._key, certificate)
        self._put(name, good, lambda: certificate_bytes(self._schema, name, good))
        return True

    def _authority(self, name: str, bundle: str) -> None:
        self._put(name, bundle, lambda: authority_bytes(self._schema, name, bundle))

    def _put(self, name: str, source: object, encode: Callable[[], bytes]) -> None:
        encoded = self._encoded.get(name)
        if encoded is None or encoded[0] != source:
            encoded = self._encoded[name] = (source, encoded_resource(ResourceType.SECRET, name, encode()))
        self.resources[name] = encoded[1]


SECRET = "envoy.extensions.transport_sockets.tls.v3.Secret"  # noqa: S105 (the name of a message type)
_MIN_RSA_BITS = 2048
_CURVES = frozenset({"secp256r1", "secp384r1", "secp521r1"})


def invalid_certificate(certificate: Certificate) -> str:
    """Return the error in a certificate or its key; empty if both are valid. An expired one can be used."""
    try:
        public = public_key_of(certificate.chain, certificate.key)
    except ValueError as error:
        return str(error)
    match public:
        case rsa.RSAPublicKey():
            return "" if public.key_size >= _MIN_RSA_BITS else f"an RSA key needs {_MIN_RSA_BITS} bits or more"
        case ec.EllipticCurvePublicKey():
            return "" if public.curve.name in _CURVES else f"the curve {public.curve.name} is not supported"
        case _:
            return "the key is neither RSA nor ECDSA"


def invalid_bundle(bundle: str) -> str:
    """Return the error in a bundle of authorities; empty if it is valid."""
    try:
        canonical_pem(bundle.encode())
    except ValueError as error:
        return str(error)
    return ""


def authority_bytes(schema: Schema, name: str, bundle: str) -> bytes:
    """Encode a bundle of authorities as a secret."""
    fields = {"trusted_ca": {"inline_bytes": canonical_pem(bundle.encode())}}
    return schema.encode(SECRET, {"name": name, "validation_context": fields})


def certificate_bytes(schema: Schema, name: str, certificate: Certificate) -> bytes:
    """Encode a certificate with its key as a secret."""
    fields = {
        "certificate_chain": {"inline_bytes": canonical_pem(certificate.chain)},
        "private_key": {"inline_bytes": certificate.key},
    }
    return schema.encode(SECRET, {"name": name, "tls_certificate": fields})
