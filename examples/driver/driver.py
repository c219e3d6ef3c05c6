# ruff: noqa: INP001
"""A Fairlead webhook driver whose load balancers live in a JSON file: python driver.py FILE PORT."""

import asyncio
import json
import sys
from pathlib import Path

from aiohttp import web

FILE, PORT = Path(sys.argv[1]), int(sys.argv[2])
load_balancers = json.loads(FILE.read_text()) if FILE.exists() else {}


def create(call):
    """Answer with lbInfo, what you need to find it again: it comes with every later call."""
    name = call["lbSpec"].get("name")
    if not name:
        return {"status": "Fail", "msg": "lbSpec needs a name", "minRetryDelayInSeconds": 30}
    load_balancers.setdefault(name, {"attributes": call["attributes"], "backends": {}})
    return {"lbInfo": {"name": name}}


def ensure(call):
    """Take over attributes that have changed; also called when Fairlead repairs what is its own."""
    load_balancers.setdefault(call["lbInfo"]["name"], {"backends": {}})["attributes"] = call["attributes"]
    return {}


def delete(call):
    """Delete a load balancer; an absent one is a success."""
    load_balancers.pop(call["lbInfo"]["name"], None)
    return {}


def register(call):
    """Repeating it is success, too."""
    if call["lbInfo"]["name"] not in load_balancers:
        return {"status": "Fail", "msg": "no such load balancer"}
    backends(call)[call["backendAddr"]] = call["parameters"]
    return {}


def deregister(call):
    """A backend, or a load balancer, that is not there is success."""
    backends(call).pop(call["backendAddr"], None)
    return {}


def address(call):
    """Name a backend as your load balancer does; Fairlead keeps that name."""
    if pod := call.get("podBackend"):
        return {"backendAddr": f"{pod['pod']['status']['podIP']}:{pod['port']['portNumber']}"}
    node = call["serviceBackend"]
    return {"backendAddr": f"{node['nodeName']}:{node['service']['spec']['ports'][0]['nodePort']}"}


def backends(call):
    """Return the backends by their addresses."""
    return load_balancers.get(call["lbInfo"]["name"], {}).get("backends", {})


def keep(call):
    """Of pods that are not ready, say which keep their place all the same."""
    return {"doNotDeregister": [pod for pod in call["notReadyPods"] if "keep" in pod["metadata"].get("labels", {})]}


async def health(call):
    """Say which backends are healthy; a real load balancer knows, here each is connected to."""
    names = list(backends(call))
    seen = await asyncio.gather(*map(answers, names))
    return {"backends": [{"backendAddr": name, "healthy": healthy} for name, healthy in zip(names, seen, strict=True)]}


async def answers(name):
    """Return whether the backend of this name takes a connection."""
    host, _, port = name.rpartition(":")
    try:
        async with asyncio.timeout(1):
            _, connection = await asyncio.open_connection(host.strip("[]"), int(port))
    except (OSError, ValueError):
        return False
    connection.close()
    return True


HOOKS = {
    "createLoadBalancer": create,
    "ensureLoadBalancer": ensure,
    "deleteLoadBalancer": delete,
    "generateBackendAddr": address,
    "ensureBackend": register,
    "deregisterBackend": deregister,
    "judgePodDeregister": keep,
    "listBackends": lambda call: {"backends": list(backends(call))},
    "backendHealth": health,
    "validateLoadBalancer": lambda call: {"succ": "name" in call["lbSpec"], "msg": "parameters need a name"},
    "validateBackend": lambda call: {
        "succ": call["parameters"].get("weight", "1").isdigit(),
        "msg": "weight: a number",
    },
    "healthz": lambda _call: {"healthy": True},
}


async def answer(request):
    """Do what is asked (in a dry run nothing), keep it, and say that it is done."""
    call, act = await request.json(), HOOKS[request.match_info["hook"]]
    result = {} if call.get("dryRun") else act(call)
    result = await result if asyncio.iscoroutine(result) else result
    new = FILE.with_suffix(".new")
    new.write_text(json.dumps(load_balancers, indent=1))
    new.replace(FILE)
    return web.json_response({"status": "Succ", "succ": True} | result)


app = web.Application()
app.router.add_post("/{hook}", answer)
if __name__ == "__main__":
    web.run_app(app, host="127.0.0.1", port=PORT)
