"""What the provider decides before it calls HAProxy."""

from __future__ import annotations

import msgspec
import pytest

from fairlead.errors import BadConfiguration
from fairlead.model.contract import Validates
from fairlead.model.desired import FrontendSpec, Listener
from fairlead.model.keys import ListenerKey, LoadBalancerKey, Protocol
from fairlead.providers.haproxy.provider import HAProxyProvider

KEY = LoadBalancerKey("LoadBalancer", "shop", "shared")
HTTP = ListenerKey(Protocol.TCP, 80)


@pytest.mark.req("L-37")
async def test_mistakes_are_refused_before_anything_is_made() -> None:
    provider = HAProxyProvider()
    assert isinstance(provider, Validates)
    good = FrontendSpec(KEY, "group", (Listener(80),), parameters={"socket": "/s", "backend": "b"})
    await provider.validate(good)
    await provider.validate_backends(good, backend_type="Pod", parameters={"weight": "3"})
    bad = msgspec.structs.replace(good, parameters={"socket": "/s", "backend": "b", "sockt": "/t"})
    with pytest.raises(BadConfiguration, match=r"parameters\.sockt is unknown"):
        await provider.validate(bad, old=good)
    with pytest.raises(BadConfiguration, match=r"parameters\.wieght of backends is unknown .* weight"):
        await provider.validate_backends(good, backend_type="Pod", parameters={"wieght": "3"})
