"""One backend has one load balancer."""

from __future__ import annotations

import msgspec
import pytest

from fairlead.errors import Retry
from fairlead.model.desired import ProxyProtocol
from fairlead.model.keys import ListenerKey, LoadBalancerKey, Protocol
from fairlead.providers.haproxy.provider import BackendOwners
from fairlead.providers.haproxy.settings import HAProxySettings

WEB, OTHER = (LoadBalancerKey("LoadBalancer", "shop", name) for name in ("web", "other"))
SETTINGS = HAProxySettings("/s", {ListenerKey(Protocol.TCP, 80): "b"}, 30.0, None, ProxyProtocol.NONE, ())


def test_a_backend_is_its_owners_until_that_leaves() -> None:
    owners = BackendOwners()
    owners.claim(WEB, SETTINGS)
    owners.require_free(WEB, SETTINGS)
    with pytest.raises(Retry, match=r"backend b .* /s .* LoadBalancer/shop/web") as caught:
        owners.require_free(OTHER, SETTINGS)
    assert caught.value.reason == "Conflicted"
    of_another = LoadBalancerKey("LoadBalancer", "other", "web")
    with pytest.raises(Retry, match=r"serves another load balancer already"):
        owners.require_free(of_another, SETTINGS)
    owners.require_free(OTHER, msgspec.structs.replace(SETTINGS, socket="/t"))
    owners.claim(WEB, msgspec.structs.replace(SETTINGS, socket="/t"))
    owners.require_free(OTHER, SETTINGS)
    owners.release(WEB)
    owners.require_free(OTHER, msgspec.structs.replace(SETTINGS, socket="/t"))
