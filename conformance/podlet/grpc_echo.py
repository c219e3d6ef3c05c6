"""The gRPC echo server of the suite. Its messages are small, so they are encoded by hand.

Source: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from conformance.podlet.requests import Request, WriteLog

SERVICE = "gateway_api_conformance.echo_basic.grpcecho.GrpcEcho"
_UNIMPLEMENTED = 12
_NOT_METADATA = ("te", "grpc-timeout", "grpc-encoding", "grpc-accept-encoding")


class GRPCEcho:
    """The two methods of GrpcEcho; every other one is UNIMPLEMENTED."""

    def __init__(self, context: dict[str, str], write_log: WriteLog) -> None:
        self._context = context
        self._write_log = write_log

    def handle(self, request: Request) -> tuple[bytes | None, int, str]:
        """Return message (None: none), grpc-status and grpc-message."""
        service, _, method = request.target.lstrip("/").rpartition("/")
        if service != SERVICE:
            return None, _UNIMPLEMENTED, f"unknown service {service}"
        if method not in ("Echo", "EchoTwo"):
            return None, _UNIMPLEMENTED, f"method {method} not implemented"
        self._write_log("Received over plaintext: ")
        metadata = [(":authority", request.host)]
        metadata += [(key, value) for key, value in request.headers if key not in _NOT_METADATA]
        assertions = _field(1, f"/{SERVICE}/{method}".encode())
        for key, value in metadata:
            assertions += _field(2, _field(1, key.encode()) + _field(2, value.encode()))
        assertions += _field(3, request.host.encode())
        context = b"".join(
            _field(number, self._context[key].encode())
            for number, key in enumerate(("namespace", "ingress", "service", "pod"), 1)
            if self._context[key]
        )
        return _field(1, assertions + _field(4, context)), 0, ""


def _varint(number: int) -> bytes:
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def _field(number: int, value: bytes) -> bytes:
    """Return a length-delimited protobuf field."""
    return _varint(number << 3 | 2) + _varint(len(value)) + value
