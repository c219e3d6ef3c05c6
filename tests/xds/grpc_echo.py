"""A gRPC server without generated code: it answers every method with its name and the message."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc
from grpc import aio

from fairlead.model.desired import Target
from fairlead.model.keys import TargetKey


class GrpcBackend(grpc.GenericRpcHandler):
    """Methods that end in ``Stream`` echo a stream; all others one message. Plaintext HTTP/2."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._address, self._port = "", 0
        self._server: aio.Server | None = None

    @property
    def target(self) -> Target:
        return Target(TargetKey(self._address, self._port))

    async def start(self, address: str) -> GrpcBackend:
        self._server = aio.server()
        self._server.add_generic_rpc_handlers((self,))
        self._address, self._port = address, self._server.add_insecure_port(f"{address}:0")
        await self._server.start()
        return self

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(grace=0)

    def service(self, handler_call_details: Any) -> Any:
        if handler_call_details.method.endswith("Stream"):
            return grpc.stream_stream_rpc_method_handler(self._stream)  # type: ignore[arg-type]
        return grpc.unary_unary_rpc_method_handler(self._unary)  # type: ignore[arg-type]

    async def _unary(self, message: bytes, _context: Any) -> bytes:
        return self.name.encode() + b": " + message

    async def _stream(self, messages: AsyncIterator[bytes], _context: Any) -> AsyncIterator[bytes]:
        async for message in messages:
            yield self.name.encode() + b": " + message
