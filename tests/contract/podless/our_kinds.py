"""Objects of our own kinds: good ones, and changes of them with the refusal that each gets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from podless_client import APPLY, Api

from fairlead.api.kinds import all_crds

Obj = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A good spec, and merge patches of it with the message of the refusal ("" where it is accepted)."""

    plural: str
    good: Obj
    created: list[tuple[Obj, str]] = field(default_factory=list)
    changed: list[tuple[Obj, str]] = field(default_factory=list)


PODS: Obj = {"ports": [{"port": 80}], "byLabel": {"selector": {"app": "web"}, "except": ["web-0"]}}
CASES = [
    Case(
        "tenants",
        {"namespace": "t-blue", "region": "north", "targetRanges": ["10.0.0.0/8"], "drainWhenLost": "10m"},
        [
            ({"maxLoadBalancers": -1}, "spec.maxLoadBalancers in body should be greater than or equal to 0"),
            ({"maxHostnames": -1}, "spec.maxHostnames in body should be greater than or equal to 0"),
            ({"drainWhenLost": "soon"}, "spec.drainWhenLost in body should match"),
            ({"namespace": "x" * 64}, "spec.namespace: Too long: may not be more than 63 bytes"),
            ({"targetRanges": 1}, "spec.targetRanges in body must be of type array"),
            ({"namespace": None, "region": None}, ""),
        ],
        [
            (
                {"namespace": "other"},
                "spec: Invalid value: namespace is immutable: delete the Tenant and create another",
            ),
            ({"namespace": None}, "namespace is immutable"),
            ({"region": "south"}, ""),
        ],
    ),
    Case(
        "loadbalancerclasses",
        {
            "provider": "webhook",
            "parameters": {"url": "https://one", "credentials": "old", "timeout": "5s"},
            "guard": {"maxRemovalPercent": 50},
        },
        [
            ({"provider": None}, "spec.provider: Required value"),
            ({"provider": ""}, "spec.provider in body should be at least 1 chars long"),
            ({"targets": "Cloud"}, 'spec.targets: Unsupported value: "Cloud"'),
            ({"guard": {"maxRemovalPercent": 101}}, "should be less than or equal to 100"),
        ],
        [
            ({"provider": "other"}, "spec.provider: Invalid value: provider is immutable: create another class"),
            ({"parameters": {"url": "https://two"}}, "spec.parameters: Invalid value: parameters is immutable, except"),
            ({"parameters": {"url": None}}, "parameters is immutable, except credentials"),
            ({"parameters": None}, "timeout.<hook>: create another class"),
            ({"parameters": {"size": "l"}}, "parameters is immutable"),
            ({"parameters": {"timeouts": "1s"}}, "parameters is immutable"),
            ({"parameters": {"credentials": "new", "timeout": None}}, ""),
            ({"parameters": {"credentials": None, "timeout.ensureBackend": "20s", "verify": "true"}}, ""),
            ({"parameters": {"tracing": "{}", "tracingSink": "http://collector:4318", "collectorCA": "PEM"}}, ""),
            ({"targets": "Pod", "draining": True}, ""),
        ],
    ),
    Case(
        "addresspools",
        {"addresses": ["192.0.2.0/28"], "reservations": [{"address": "192.0.2.1", "tenant": "east"}]},
        [
            ({"addresses": []}, "spec.addresses in body should have at least 1 items"),
            ({"addresses": None}, "spec.addresses: Required value"),
            ({"maxPerTenant": -1}, "spec.maxPerTenant in body should be greater than or equal to 0"),
            ({"tenants": ["a", "a"]}, 'spec.tenants[1]: Duplicate value: "a"'),
            ({"reservations": [{"address": "192.0.2.1"}, {"address": "192.0.2.1"}]}, "spec.reservations[1]: Duplicate"),
        ],
        [
            ({"addresses": ["198.51.100.0/28"], "avoid": ["198.51.100.1"], "maxPerTenant": 2}, ""),
            ({"region": "north"}, "region is immutable: create another AddressPool"),
        ],
    ),
    Case(
        "advertisements",
        {"announcement": "BGP", "pools": ["public"], "communities": ["65000:1"], "med": 0},
        [
            ({"announcement": None}, "spec.announcement: Required value"),
            ({"announcement": "OSPF"}, 'spec.announcement: Unsupported value: "OSPF"'),
            ({"announcement": "L2"}, "need announcement BGP or External"),
            ({"interfaces": ["eth0"]}, "interfaces and fast need announcement L2"),
            ({"communities": ["65000"]}, "spec.communities[0] in body should match"),
            ({"pools": ["public", "public"]}, 'spec.pools[1]: Duplicate value: "public"'),
            ({"prepend": 17}, "spec.prepend in body should be less than or equal to 16"),
            ({"announcement": "L2", "communities": None, "med": None, "anycast": True}, "anycast needs announcement"),
            ({"communities": ["no-export", "1:2:4294967295"], "aggregation": {"ipv4Length": 24}}, ""),
        ],
        [({"announcement": "L2", "communities": None, "med": None, "fast": True}, "")],
    ),
    Case(
        "bgppeers",
        {"address": "10.0.0.1", "asn": 65000, "localASN": 65001, "passwordSecret": "tor-a"},
        [
            ({"address": None}, "address or interface is required"),
            ({"asn": 0}, "spec.asn in body should be greater than or equal to 1"),
            ({"localASN": None}, "spec.localASN: Required value"),
            ({"holdTimeSeconds": 2}, "spec.holdTimeSeconds in body should be greater than or equal to 3"),
            ({"bfdIntervalMs": 5}, "spec.bfdIntervalMs in body should be greater than or equal to 10"),
            ({"asn": 65001, "ttlSecurity": True}, "ttlSecurity needs a router of another ASN"),
            ({"interface": "eth0", "hops": 2}, "hops above 1 needs an address without an interface"),
            ({"interface": "eth0/1"}, "spec.interface in body should match"),
            ({"address": None, "interface": "eth0"}, ""),
        ],
        [({"holdTimeSeconds": 9, "bfd": True, "hops": 4}, "")],
    ),
    Case(
        "tcploadbalancers",
        {"ports": [{"port": 80}], "loadBalancerSourceRanges": ["10.0.0.0/8"]},
        [
            ({"origin": {"name": "web\x1b[2J"}}, "spec.origin.name in body should match '^[ -~]*$'"),
            ({"origin": {"namespace": "shop\n"}}, "spec.origin.namespace in body should match '^[ -~]*$'"),
            ({"className": "a\nb"}, "spec.className in body should match '^[ -~]*$'"),
            ({"ports": []}, "spec.ports in body should have at least 1 items"),
            ({"ports": [{"port": 0}]}, "spec.ports[0].port in body should be greater than or equal to 1"),
            ({"ports": [{"port": 80}, {"port": 80}]}, 'spec.ports[1]: Duplicate value: {"port":80'),
            ({"sessionAffinity": "Sometimes"}, 'spec.sessionAffinity: Unsupported value: "Sometimes"'),
            ({"address": "x" * 254}, "spec.address: Too long"),
        ],
        [({"ports": [{"port": 81, "protocol": "UDP"}]}, "")],
    ),
    Case(
        "httploadbalancers",
        {"listeners": [{"name": "http", "port": 80}, {"name": "https", "port": 443, "protocol": "HTTPS"}]},
        [
            ({"listeners": []}, "spec.listeners in body should have at least 1 items"),
            ({"listeners": [{"name": "http", "port": 0}]}, "should be greater than or equal to 1"),
            (
                {"listeners": [{"name": "http", "port": 80}, {"name": "http", "port": 81}]},
                'spec.listeners[1]: Duplicate value: {"name":"http"}',
            ),
            ({"listeners": [{"name": "a", "port": 80, "protocol": "SCTP"}]}, 'Unsupported value: "SCTP"'),
            ({"listeners": [{"name": "a\x1b", "port": 80}]}, "spec.listeners[0].name in body should match"),
        ],
        [({"listeners": [{"name": "http", "port": 8080, "hostname": "*.example.com"}]}, "")],
    ),
    Case(
        "loadbalancerroutes",
        {
            "loadBalancer": "gw",
            "attachments": [{"listener": "http", "hostnames": ["shop.example.com"]}],
            "rules": [{"filters": {"redirect": {"statusCode": 301}}}],
        },
        [
            ({"loadBalancer": ""}, "spec.loadBalancer in body should be at least 1 chars long"),
            (
                {"attachments": [{"listener": "http", "hostnames": [f"h{n}.example.com" for n in range(65)]}]},
                "spec.attachments[0].hostnames: Too many: 65: must have at most 64 items",
            ),
            ({"kind": "SCTP"}, 'spec.kind: Unsupported value: "SCTP"'),
            ({"rules": [{"filters": {"redirect": {"statusCode": 300}}}]}, "Unsupported value: 300"),
        ],
        [({"rules": [{"matches": [{"path": {"value": "/cart"}}]}]}, "")],
    ),
    Case(
        "globalservices",
        {"service": "shop/web", "members": [{"tenant": "west", "weight": 60}, {"tenant": "east", "priority": 1}]},
        [
            ({"members": None}, "spec.members: Required value"),
            ({"members": []}, "spec.members in body should have at least 1 items"),
            ({"members": [{"weight": 1}]}, "spec.members[0].tenant: Required value"),
            ({"members": [{"tenant": "west"}, {"tenant": "west"}]}, "Duplicate value"),
            ({"members": [{"tenant": "west", "weight": 1001}]}, "should be less than or equal to 1000"),
            ({"members": [{"tenant": "west", "priority": 10}]}, "should be less than or equal to 9"),
            ({"service": "web"}, "spec.service in body should match"),
            ({"dropWhenLost": "soon"}, "spec.dropWhenLost in body should match"),
            ({"spillover": "some"}, 'spec.spillover: Unsupported value: "some"'),
        ],
        [({"service": None, "spillover": "proportional", "members": [{"tenant": "north"}]}, "")],
    ),
    Case(
        "drills",
        {"member": "west", "service": "shop/web"},
        [
            ({"member": None}, "spec.member: Required value"),
            ({"member": ""}, "spec.member in body should be at least 1 chars long"),
            ({"service": "web"}, "spec.service in body should match"),
            ({"mode": "Off"}, 'spec.mode: Unsupported value: "Off"'),
            ({"duration": "soon"}, "spec.duration in body should match"),
            ({"stopOn": "5xx"}, "spec.stopOn in body should match"),
            ({"stopOn": "5xx>100%"}, "spec.stopOn in body should match"),
        ],
        [
            ({"member": "east"}, "member is immutable: create another Drill"),
            ({"service": None}, "service is immutable: create another Drill"),
            ({"mode": "Dark"}, "mode is immutable: create another Drill"),
            ({"stop": True}, ""),
        ],
    ),
    Case(
        "drillschedules",
        {"schedule": "0 10 * * 2", "drill": {"member": "west"}, "blockedWindows": ["Mon-Fri 08:00-18:00"]},
        [
            ({"blockedWindows": ["2026-12-20/2027-01-03", "22:00-06:00", "Sun 10:00-11:00"]}, ""),
            ({"blockedWindows": ["Mon-Fri 08:00-25:00"]}, "spec.blockedWindows[0] in body should match"),
            ({"blockedWindows": ["Monday"]}, "spec.blockedWindows[0] in body should match"),
            ({"drill": {"member": None}}, "spec.drill.member: Required value"),
            ({"historyLimit": 0}, "should be greater than or equal to 1"),
        ],
        [({"suspend": True, "schedule": None}, "")],
    ),
    Case(
        "exportedservices",
        {
            "namespace": "shop",
            "name": "web",
            "ports": [{"port": 80, "protocol": "TCP"}],
            "exportedAt": "2026-01-01T00:00:00Z",
        },
        [
            ({"type": "External"}, 'spec.type: Unsupported value: "External"'),
            ({"name": "x" * 64}, "spec.name: Too long: may not be more than 63 bytes"),
            ({"sessionAffinitySeconds": 86_401}, "should be less than or equal to 86400"),
            ({"ports": None, "type": "Headless", "labels": {"team": "blue"}}, ""),
        ],
        [({"ipFamilies": ["IPv4", "IPv6"]}, "")],
    ),
    Case(
        "importedservices",
        {"namespace": "shop", "name": "web", "ports": [{"port": 80}], "clusters": ["east", "west"]},
        [
            ({"clusters": ["east", "east"]}, 'spec.clusters[1]: Duplicate value: "east"'),
            ({"sessionAffinity": "Cookie"}, 'spec.sessionAffinity: Unsupported value: "Cookie"'),
            ({"clusters": None}, ""),
        ],
        [({"clusters": ["east"]}, "")],
    ),
    Case(
        "loadbalancers",
        {"className": "local", "listeners": [{"port": 80}], "parameters": {"size": "s"}, "scope": ["a", "b"]},
        [
            ({"className": None}, "one of className and infrastructureRef is needed"),
            ({"listeners": []}, "spec.listeners in body should have at least 1 items"),
            ({"scope": ["a", "a"]}, 'spec.scope[1]: Duplicate value: "a"'),
            ({"existing": {"id": "7"}}, ""),
        ],
        [
            (
                {"className": "other"},
                "spec.className: Invalid value: className is immutable: create another LoadBalancer",
            ),
            (
                {"parameters": {"size": "l"}},
                "spec.parameters: Invalid value: parameters is immutable: create another LoadBalancer",
            ),
            ({"parameters": None}, "spec.parameters: Invalid value: parameters is immutable"),
            ({"existing": {"id": "7"}}, "existing is immutable: create another LoadBalancer"),
            ({"existing": {}}, ""),
            ({"attributes": {"a": "b"}, "listeners": [{"port": 80}, {"port": 81}]}, ""),
        ],
    ),
    Case(
        "backendgroups",
        {"loadBalancers": ["lb"], "pods": PODS},
        [
            ({"pods": None}, "exactly one of pods, service and static is needed"),
            ({"static": ["10.0.0.1:80"]}, "exactly one of pods, service and static is needed"),
            ({"pods": {"byName": ["web-1"]}}, "pods: exactly one of byLabel and byName is needed"),
            ({"pods": {"byLabel": None}}, "pods: exactly one of byLabel and byName is needed"),
            ({"deregisterPolicy": "Webhook"}, "deregisterPolicy Webhook needs deregisterWebhook"),
            ({"loadBalancers": []}, "spec.loadBalancers in body should have at least 1 items"),
            ({"pods": {"byLabel": {"selector": {"app": 1}}}}, "selector.app in body must be of type string"),
            ({"deregisterPolicy": "Webhook", "deregisterWebhook": {"className": "c"}}, ""),
        ],
        [
            (
                {"pods": None, "static": ["10.0.0.1:80"]},
                "the kind of backends (pods, service or static) is immutable: create another",
            ),
            (
                {"pods": None, "service": {"name": "s", "port": {"port": 80}}},
                "the kind of backends (pods, service or static) is immutable: create another",
            ),
            ({"pods": {"byLabel": None, "byName": ["web-1"]}}, ""),
        ],
    ),
    Case(
        "backendrecords",
        {
            "loadBalancer": {"kind": "LoadBalancer", "namespace": "n", "name": "lb", "provider": "envoy"},
            "listener": {"port": 80, "protocol": "TCP"},
            "target": {"address": "10.0.0.1", "port": 8080},
            "owners": ["a"],
        },
        [
            ({"target": {"address": ""}}, "spec.target.address in body should be at least 1 chars long"),
            ({"listener": {"protocol": "ICMP"}}, 'spec.listener.protocol: Unsupported value: "ICMP"'),
            ({"owners": ["a", "a"]}, 'spec.owners[1]: Duplicate value: "a"'),
        ],
        [
            ({"target": {"address": "10.0.0.2"}}, "a record is about one backend for its whole life"),
            ({"loadBalancer": {"name": "other"}}, "a record is about one backend for its whole life"),
            ({"target": {"weight": 5}, "owners": ["a", "b"]}, ""),
        ],
    ),
    Case(
        "clusterloadbalancerpolicies",
        {"className": "edge", "infrastructureKinds": ["MetalCluster"]},
        [
            ({"className": None}, "spec.className: Required value"),
            ({"className": ""}, "spec.className in body should be at least 1 chars long"),
            ({"infrastructureKinds": ["A", "A"]}, 'spec.infrastructureKinds[1]: Duplicate value: "A"'),
        ],
        [({"className": "other", "listeners": [{"port": 443}]}, "")],
    ),
    Case(
        "nodepools",
        {"nodeSelector": {"zone": "a"}, "region": "north"},
        [
            ({"nodeSelector": {"zone": 1}}, "spec.nodeSelector.zone in body must be of type string"),
            ({"region": "x" * 64}, "spec.region: Too long"),
        ],
        [({"region": "south"}, "")],
    ),
    Case(
        "poolservices",
        {
            "nodepoolName": "north",
            "renewTime": "2026-01-02T03:04:05.000006Z",
            "loadBalancerClass": "fairlead.dev/local",
        },
        [
            ({"loadBalancerClass": "x" * 254}, "spec.loadBalancerClass: Too long"),
            ({"renewTime": None}, ""),
            ({"nodepoolName": 5}, "spec.nodepoolName in body must be of type string"),
        ],
        [({"renewTime": "2026-01-02T03:04:06Z"}, "")],
    ),
    Case(
        "dnszones",
        {"zone": "example.com", "provider": "rfc2136", "parameters": {"server": "192.0.2.53"}},
        [
            ({"zone": ""}, "spec.zone in body should be at least 1 chars long"),
            ({"provider": ""}, "spec.provider in body should be at least 1 chars long"),
            ({"ownerId": "no spaces"}, "spec.ownerId in body should match"),
        ],
        [
            ({"ttlSeconds": 300, "dryRun": True}, ""),
            ({"zone": "example.net"}, "zone is immutable"),
            ({"provider": "powerdns"}, "provider is immutable"),
            ({"ownerId": "other"}, "ownerId is immutable"),
        ],
    ),
    Case(
        "hostnames",
        {"host": "shop.example.com", "addresses": ["192.0.2.7"], "owner": {"member": "berlin"}},
        [
            ({"host": "Shop.example.com"}, "spec.host in body should match"),
            ({"host": "a..example.com"}, "spec.host in body should match"),
            ({"host": "-a.example.com"}, "spec.host in body should match"),
            ({"cname": "edge.example.net"}, "a name with a CNAME record has no addresses"),
            ({"ttlSeconds": -1}, "should be greater than or equal to 0"),
        ],
        [({"addresses": ["2001:db8::7"], "ttlSeconds": 30}, ""), ({"host": "cart.example.com"}, "host is immutable")],
    ),
    Case(
        "certificateissuers",
        {"server": "https://acme.example.com/directory", "solvers": ["HTTP01"]},
        [
            ({"server": "no address"}, "spec.server in body should match"),
            ({"solvers": ["TLSALPN01"]}, "supported values"),
        ],
        [({"email": "ops@example.com"}, "")],
    ),
    Case(
        "managedcertificates",
        {"hosts": ["shop.example.com"], "issuer": "acme"},
        [
            ({"hosts": []}, "spec.hosts in body should have at least 1 items"),
            ({"issuer": ""}, "spec.issuer in body should be at least 1 chars long"),
        ],
        [({"secretName": "other"}, "")],
    ),
    Case(
        "proxymachines",
        {"group": "edge"},
        [
            ({"group": ""}, "spec.group in body should be at least 1 chars long"),
            ({"drained": "yes"}, "spec.drained in body must be of type boolean"),
            ({"group": None}, ""),
        ],
        [({"drained": True}, "")],
    ),
    Case(
        "proxygroups",
        {"mode": "Replicas", "replicas": 2, "classes": ["envoy"], "machines": {"groups": ["edge"]}},
        [
            ({"mode": "Some"}, 'spec.mode: Unsupported value: "Some"'),
            ({"replicas": 0}, "spec.replicas in body should be greater than or equal to 1"),
            ({"pools": ["public", "public"]}, 'spec.pools[1]: Duplicate value: "public"'),
            ({"mode": "All", "replicas": None, "machines": {"matchLabels": {"rack": "1"}}}, ""),
        ],
        [({"replicas": 3, "zonesKey": "example.com/rack"}, "")],
    ),
]


class Kind:
    """One of our kinds at a server."""

    def __init__(self, api: Api, plural: str) -> None:
        self.api = api
        self.crd = next(crd for crd in all_crds() if crd["spec"]["names"]["plural"] == plural)
        spec = self.crd["spec"]
        self.kind = spec["names"]["kind"]
        place = f"namespaces/{api.ns}/" if spec["scope"] == "Namespaced" else ""
        self.api_version = f"{spec['group']}/{spec['versions'][0]['name']}"
        self.path = f"/apis/{self.api_version}/{place}{plural}"

    @property
    def has_observed_generation(self) -> bool:
        """Return whether a status of the kind says which generation it is about."""
        properties = self.crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
        return "observedGeneration" in properties.get("status", {}).get("properties", {})

    async def install(self) -> None:
        name = self.crd["metadata"]["name"]
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"
        answer = await self.api.patch(
            path, self.crd, APPLY, fieldManager="test", force="true", fieldValidation="Strict"
        )
        assert answer.code in {200, 201}, answer.raw
        await self.api.served(self.path)

    def object(self, name: str, spec: Obj) -> Obj:
        return {"apiVersion": self.api_version, "kind": self.kind, "metadata": {"name": name}, "spec": spec}


def merged(base: Any, patch: Any) -> Any:
    """Apply a JSON merge patch."""
    if not isinstance(patch, dict):
        return patch
    result = dict(base) if isinstance(base, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result
