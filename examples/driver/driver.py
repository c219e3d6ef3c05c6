# ruff: noqa: D103, INP001, N802 (functions are named as the hooks are)
"""A Fairlead webhook driver whose load balancers live in a JSON file: python driver.py FILE PORT."""

import json
import sys
from pathlib import Path

from aiohttp import web

FILE, PORT = Path(sys.argv[1]), int(sys.argv[2])
load_balancers = json.loads(FILE.read_text()) if FILE.exists() else {}


def save():
    """Write what there is, at once or not at all."""
    new = FILE.with_suffix(".new")
    new.write_text(json.dumps(load_balancers, indent=1))
    new.replace(FILE)


def hook(act):
    """Answer POST /<name of act>; in a dry run say yes and do nothing."""

    async def answer(request):
        call = await request.json()
        result = {} if call.get("dryRun") else act(call)
        save()
        return web.json_response({"status": "Succ", "succ": True} | result)

    app.router.add_post(f"/{act.__name__}", answer)


app = web.Application()


@hook
def createLoadBalancer(call):  # lbInfo is what you need to find it again; it comes with every later call
    name = call["lbSpec"].get("name")
    if not name:
        return {"status": "Fail", "msg": "lbSpec needs a name", "minRetryDelayInSeconds": 30}
    load_balancers.setdefault(name, {"attributes": call["attributes"], "backends": {}})
    return {"lbInfo": {"name": name}}


@hook
def ensureLoadBalancer(call):  # the attributes have changed, or Fairlead repairs what is its own
    lb = load_balancers.setdefault(call["lbInfo"]["name"], {"backends": {}})
    lb["attributes"] = call["attributes"]
    return {}


@hook
def deleteLoadBalancer(call):  # one that is gone already is success
    load_balancers.pop(call["lbInfo"]["name"], None)
    return {}


@hook
def generateBackendAddr(call):  # only for backends that have no address of their own yet
    pod = call["podBackend"]
    return {"backendAddr": f"{pod['pod']['status']['podIP']}:{pod['port']['portNumber']}"}


@hook
def ensureBackend(call):  # repeating it is success, too
    lb = load_balancers.get(call["lbInfo"]["name"])
    if lb is None:
        return {"status": "Fail", "msg": "no such load balancer"}
    lb["backends"][call["backendAddr"]] = call["parameters"]
    return {}


@hook
def deregisterBackend(call):  # a backend, or a load balancer, that is not there is success
    load_balancers.get(call["lbInfo"]["name"], {}).get("backends", {}).pop(call["backendAddr"], None)
    return {}


@hook
def listBackends(call):  # Fairlead reads back what you say you did (verify: "true")
    return {"backends": list(load_balancers.get(call["lbInfo"]["name"], {}).get("backends", {}))}


@hook
def validateLoadBalancer(call):  # asked once, before an object is accepted
    return {"succ": "name" in call["lbSpec"], "msg": "parameters need a name"}


@hook
def validateBackend(call):
    return {"succ": call["parameters"].get("weight", "1").isdigit(), "msg": "weight is a number"}


@hook
def judgePodDeregister(call):  # pods that are not ready and keep their place all the same
    return {"doNotDeregister": [p for p in call["notReadyPods"] if "keep" in p["metadata"].get("labels", {})]}


@hook
def healthz(_call):
    return {"healthy": True}


if __name__ == "__main__":
    web.run_app(app, host="127.0.0.1", port=PORT)
