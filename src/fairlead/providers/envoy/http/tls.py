"""The transport sockets for TLS with clients and with backends.

In: a listener or a backend, and the names of its secrets. Out: transport sockets. Certificates and authorities come
over SDS, so their rotation changes neither a listener nor a cluster. Requirements: G-81, G-82, G-84, G-86, G-90, G-114.
Source: https://www.envoyproxy.io/docs/envoy/latest/api-v3/extensions/transport_sockets/tls/v3/tls.proto
"""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.model.http import Backend, ClientValidation, SubjectAltName
from fairlead.providers.envoy.schema import Fields, Schema, duration

TLS = "envoy.transport_sockets.tls"
_QUIC = "envoy.transport_sockets.quic"
_CONTEXTS = "envoy.extensions.transport_sockets.tls.v3"
_SAN_TYPES = {"Hostname": "DNS", "URI": "URI"}
#: Where the images of Envoy, and most distributions, have the system's authorities.
_SYSTEM_AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"
_ALPN = {"HTTP1": ["http/1.1"], "HTTP2": ["h2"]}


def sds(name: str) -> Fields:
    """Return where a secret of this name is fetched from."""
    source = {"ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": duration(5.0)}
    return {"name": name, "sds_config": source}


def downstream_tls(
    schema: Schema,
    *,
    certificates: Sequence[str],
    alpn: Sequence[str],
    validation: ClientValidation | None,
    authority: str,
    quic: bool = False,
) -> Fields:
    """Build the socket of a terminating listener; ``certificates`` and ``authority`` are names of secrets."""
    context: dict[str, object] = {"tls_certificate_sds_secret_configs": [sds(name) for name in certificates]}
    if alpn:
        context["alpn_protocols"] = list(alpn)
    fields: dict[str, object] = {"common_tls_context": context}
    if validation is not None:
        trust = {"trust_chain_verification": "ACCEPT_UNTRUSTED"} if validation.optional else {}
        context["combined_validation_context"] = {
            "default_validation_context": trust,
            "validation_context_sds_secret_config": sds(authority),
        }
        if not validation.optional:
            fields["require_client_certificate"] = {"value": True}
    if quic:
        kind = "envoy.extensions.transport_sockets.quic.v3.QuicDownstreamTransport"
        return schema.extension(_QUIC, kind, {"downstream_tls_context": fields})
    return schema.extension(TLS, f"{_CONTEXTS}.DownstreamTlsContext", fields)


def backend_tls(schema: Schema, backend: Backend, *, certificate: str, authority: str) -> Fields:
    """Build the socket towards a backend with ``tls``; the names of its secrets are empty where there is none."""
    tls = backend.tls
    if tls is None:
        raise ValueError(f"backend {backend.name} has no TLS settings")
    names = tls.subject_alt_names
    if not names and tls.server_name:
        names = (SubjectAltName("Hostname", tls.server_name),)
    validation: dict[str, object] = {
        "match_typed_subject_alt_names": [
            {"san_type": _SAN_TYPES[name.type], "matcher": {"exact": name.value}} for name in names
        ]
    }
    context: dict[str, object] = {}
    if authority:
        context["combined_validation_context"] = {
            "default_validation_context": validation,
            "validation_context_sds_secret_config": sds(authority),
        }
    else:
        context["validation_context"] = {**validation, "trusted_ca": {"filename": _SYSTEM_AUTHORITIES}}
    if certificate:
        context["tls_certificate_sds_secret_configs"] = [sds(certificate)]
    if backend.protocol in _ALPN:
        context["alpn_protocols"] = _ALPN[backend.protocol]
    return schema.extension(
        TLS, f"{_CONTEXTS}.UpstreamTlsContext", {"common_tls_context": context, "sni": tls.server_name}
    )
