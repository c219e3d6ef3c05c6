"""Maintenance of hosts at a real Envoy."""

from __future__ import annotations

import msgspec
import pytest

from fairlead.model.desired import FrontendSpec
from fairlead.model.http import MAX_PAGE_BYTES, FixedAnswer, Maintenance
from fairlead.providers.envoy.settings import TRUSTED_HOPS
from tests.xds.http_world import HttpWorld, config, get, route, to, with_config

pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="session"), pytest.mark.req("F-22")]

PAGE = "<h1>Back soon ü</h1>"


async def change(http: HttpWorld, spec: FrontendSpec, *maintenance: Maintenance) -> FrontendSpec:
    assert spec.l7 is not None
    after = with_config(spec, msgspec.structs.replace(spec.l7, maintenance=maintenance))
    await http.provider.ensure(after)
    await http.programmed(after)
    return after


async def test_a_host_in_maintenance_has_a_page_and_others_serve(http: HttpWorld) -> None:
    backend = await http.echo("one")
    shop, every = (
        route("shop", to("one"), hosts=["shop.example.com"]),
        route("every", to("one"), hosts=["*.example.com"]),
    )
    answer = FixedAnswer("shop.example.com", "/.well-known/acme-challenge/x", "proof")
    spec = await http.start(msgspec.structs.replace(config(shop, every), answers=(answer,)), backend)
    page = Maintenance("shop.example.com", 503, 600, page=PAGE + " " * (MAX_PAGE_BYTES - len(PAGE.encode())))
    closed = await change(http, spec, page, Maintenance("new.example.com", 502))
    response = await get(closed, "/any", host="shop.example.com")
    assert (response.status, response.headers["retry-after"]) == (503, "600")
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert response.body.startswith(PAGE)
    assert (await get(closed, host="new.example.com")).status == 502
    assert (await get(closed, host="other.example.com")).status == 200
    assert (await get(closed, answer.path, host="shop.example.com")).body == "proof"
    opened = await change(http, closed)
    assert (await get(opened, host="shop.example.com")).status == 200


async def test_allowed_clients_reach_the_routes_of_a_host_in_maintenance(http: HttpWorld) -> None:
    backend = await http.echo("one")
    spec = await http.start(config(route("r", to("one"))), backend, parameters={TRUSTED_HOPS: "1"})
    closed = await change(http, spec, Maintenance(page=PAGE, allowed_sources=("192.0.2.0/24", "2001:db8::/32")))
    for address, status in (("192.0.2.7", 200), ("2001:db8::7", 200), ("192.0.3.7", 503), ("2001:db9::7", 503)):
        assert (await get(closed, headers={"X-Forwarded-For": address})).status == status, address
        forged = {"X-Forwarded-For": address, "X-Envoy-External-Address": "192.0.2.7"}
        assert (await get(closed, headers=forged)).status == status, address


async def test_a_client_cannot_say_that_it_is_allowed(http: HttpWorld) -> None:
    backend = await http.echo("one")
    spec = await http.start(config(route("r", to("one"))), backend)
    closed = await change(http, spec, Maintenance(allowed_sources=("192.0.2.0/24",)))
    for name in ("X-Forwarded-For", "X-Envoy-External-Address"):
        assert (await get(closed, headers={name: "192.0.2.7"})).status == 503
    opened = await change(http, closed, Maintenance(allowed_sources=("127.0.0.0/8",)))
    assert (await get(opened)).status == 200


async def test_clients_of_grpc_get_the_status_without_the_page(http: HttpWorld) -> None:
    backend = await http.echo("one")
    spec = await http.start(config(route("r", to("one"))), backend)
    closed = await change(http, spec, Maintenance(page=PAGE))
    headers = (await get(closed, headers={"Content-Type": "application/grpc"})).headers
    assert (headers["content-type"], headers["grpc-status"]) == ("application/grpc", "14")
    assert "grpc-message" not in headers
    assert (await get(closed)).body == PAGE
