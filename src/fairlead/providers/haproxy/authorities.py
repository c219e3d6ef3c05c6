"""The CA bundles of HTTPS health checks: loads each into HAProxy's memory, and returns its name there.

In: a bundle (PEM). Out: the name under which HAProxy has it, in its memory only: no file, and no right to write one.
It is there before the first server that is checked with it, and again after each reload. Each bundle has a name of its
own: HAProxy cannot change what a server that is there is checked with, so another bundle holds for servers that are
added from then on. Never: a bundle that HAProxy has already.
Source: https://docs.haproxy.org/2.6/management.html#9.3-new%20ssl%20ca-file
"""

from __future__ import annotations

import hashlib

from fairlead.errors import Retry
from fairlead.model.keys import LoadBalancerKey
from fairlead.providers.haproxy.runtime_api import RuntimeApi

_DIGITS = 10


def authority_name(installation: str, key: LoadBalancerKey, bundle: str) -> str:
    """Return the name of one authority of a load balancer; only we would give it."""
    return _prefix(installation, key) + _digest(bundle)


async def load_authority(api: RuntimeApi, name: str, bundle: str, *, epoch: str) -> None:
    """Have HAProxy know ``bundle`` as ``name``; ``epoch`` is that of its process. Holds no lock.

    Raises:
        Retry: HAProxy does not take it; the sentence has its words.
    """
    if api.authorities.get(name) == epoch:
        return
    # "already exists" is as good: an earlier process of ours has made it.
    await api.run([f"new ssl ca-file {name}"])
    lines = "\n".join(line for line in bundle.splitlines() if line.strip())
    answer = await api.run_with_payload(f"set ssl ca-file {name}", lines)
    answer += await api.run([f"commit ssl ca-file {name}"])
    if "Success!" not in answer:
        await api.run([f"abort ssl ca-file {name}"])
        said = "; ".join(line.strip() for line in answer.splitlines() if line.strip())[:300]
        raise Retry(
            f"HAProxy at {api.path} does not take the authority of its health checks (spec.healthCheck.caBundle): "
            f"{said or 'it does not say why'}"
        )
    api.authorities[name] = epoch


async def drop_authorities(api: RuntimeApi, installation: str, key: LoadBalancerKey) -> None:
    """Have HAProxy forget all authorities of a load balancer that has no servers any more. Holds no lock."""
    ours = _prefix(installation, key)
    listed = [line.split(" ")[0] for line in (await api.run(["show ssl ca-file"])).splitlines()]
    if names := [name for name in listed if name.startswith(ours)]:
        await api.run([f"del ssl ca-file {name}" for name in names])
    for name in names:
        api.authorities.pop(name, None)


def _prefix(installation: str, key: LoadBalancerKey) -> str:
    text = "".join(f"{len(part)}:{part}" for part in (installation, *key))
    return f"fl-{_digest(text)}-ca-"


def _digest(text: str) -> str:
    return hashlib.blake2s(text.encode()).hexdigest()[:_DIGITS]
