"""The servers of the suite's pods answer as the suite expects, over HTTP/1.1, HTTP/2, TCP and UDP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
import pytest_asyncio

from conformance.podlet.grpc_echo import SERVICE
from conformance.podlet.objects import ContainerSpec
from conformance.podlet.requests import canonical, seconds
from conformance.podlet.servers import Servers
from fairlead_demo.worlds.loopback import free_network

ECHO = ContainerSpec(name="echo", image="echo-basic")


@pytest_asyncio.fixture
async def servers(tmp_path: Path) -> AsyncIterator[tuple[Servers, str, list[str]]]:
    """Servers at an address of their own, and the lines of their log."""
    ip = f"{free_network()}.11"
    servers = Servers(ip, tmp_path)
    yield servers, ip, []
    servers.close()


async def get(ip: str, target: str, *, port: int = 3000, headers: str = "") -> tuple[int, str]:
    reader, writer = await asyncio.open_connection(ip, port)
    writer.write(f"GET {target} HTTP/1.1\r\nHost: a.example\r\n{headers}Connection: close\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split(b" ")[1]) if head else 0, f"{head.decode()}\n{body.decode()}"


@pytest.mark.req("G-11", "G-12", "G-15")
async def test_http_is_echoed_as_json(servers: tuple[Servers, str, list[str]]) -> None:
    running, ip, log = servers
    await running.start(ECHO, {"NAMESPACE": "ns", "POD_NAME": "pod-1"}, log.append)
    status, text = await get(ip, "/a?b=c", headers="x-my-ID: 1\r\nX-Echo-Set-Header: X-Set:y\r\n")
    echoed = json.loads(text.partition("\n{")[2].join(["{", ""]))
    assert (status, echoed["path"], echoed["host"], echoed["pod"]) == (200, "/a?b=c", "a.example", "pod-1")
    assert echoed["headers"]["X-My-Id"] == ["1"]
    assert "X-Set: y" in text
    assert log[-1].startswith("Echoing back request made to /a?b=c to client (")
    assert (await get(ip, "/status/503"))[0] == 503
    retry = "/retry/x?uuid=u&succeedAfter=1&responseCode=500"
    assert [(await get(ip, retry))[0], (await get(ip, retry))[0]] == [500, 200]
    assert (await get(ip, "/", port=3001))[0] == 400, "3001 takes HTTP/2 only"


@pytest.mark.req("G-13")
async def test_grpc_answers_two_methods(servers: tuple[Servers, str, list[str]]) -> None:
    running, ip, log = servers
    await running.start(ECHO, {"GRPC_ECHO_SERVER": "1", "POD_NAME": "pod-2"}, log.append)
    async with grpc.aio.insecure_channel(f"{ip}:3000") as channel:
        answer = await channel.unary_unary(f"/{SERVICE}/Echo")(b"", wait_for_ready=True)
        assert b"pod-2" in answer
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await channel.unary_unary(f"/{SERVICE}/EchoThree")(b"")
        assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.req("G-14")
async def test_tcp_speaks_lines_and_udp_answers(servers: tuple[Servers, str, list[str]]) -> None:
    running, ip, log = servers
    await running.start(ECHO, {"TCP_ECHO_SERVER": "1", "POD_NAME": "pod-3"}, log.append)
    reader, writer = await asyncio.open_connection(ip, 3000)
    assert (await reader.readline()).startswith(b"Gateway API Test")
    writer.write(b"PING\nIS_TLS\nTEST\n")
    assert [await reader.readline(), await reader.readline()] == [b"PONG\n", b"false\n"]
    assert json.loads(await reader.readline())["pod"] == "pod-3"
    writer.close()

    await running.start(ECHO, {"UDP_ECHO_SERVER": "1", "POD_NAME": "pod-4"}, log.append)
    answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    class Client(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
            if not answered.done():
                answered.set_result(data)

    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(Client, remote_addr=(ip, 8080))
    transport.sendto(b"hello")
    assert json.loads(await asyncio.wait_for(answered, 180)) == {
        "request": "hello", "namespace": "", "ingress": "", "service": "", "pod": "pod-4",
    }  # fmt: skip
    transport.close()


def test_names_and_durations_as_go_writes_them() -> None:
    assert canonical("x-my-ID") == "X-My-Id"
    assert (seconds("500ms"), seconds("1m30s")) == (0.5, 90.0)
    with pytest.raises(ValueError, match="not a duration"):
        seconds("soon")
