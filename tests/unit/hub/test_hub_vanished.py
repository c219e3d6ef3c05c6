"""A load balancer that is deleted while its status is written is no error."""

from __future__ import annotations

import pytest

from fairlead.errors import NotFound, Retry, Terminal
from fairlead.hub.vanished import retry_vanished
from fairlead.model.keys import LoadBalancerKey

KEY = LoadBalancerKey("HTTPLoadBalancer", "tenant-east", "shop")


@pytest.mark.parametrize(
    ("raised", "expected"),
    [(NotFound("it is gone"), Retry), (Terminal("it is refused"), Terminal), (Retry("it is busy"), Retry)],
)
async def test_only_what_is_gone_is_tried_again(raised: Exception, expected: type[Exception]) -> None:
    async def fail(_key: LoadBalancerKey) -> float | None:
        raise raised

    with pytest.raises(expected, match=str(raised)) as caught:
        await retry_vanished(fail)(KEY)
    assert isinstance(caught.value, Retry) == (expected is Retry)


async def test_the_answer_is_handed_on() -> None:
    async def answer(_key: LoadBalancerKey) -> float | None:
        return 2.5

    assert await retry_vanished(answer)(KEY) == 2.5
