"""A Service gets its addresses and ports, keeps them, and loses them with its type."""

from typing import Any

import pytest
from podless_client import Api, service


async def test_a_load_balancer_gets_what_it_needs(api: Api) -> None:
    made = (await api.post(api.svcs, service("s"))).ok(201)
    spec, port = made["spec"], made["spec"]["ports"][0]
    assert 30000 <= port["nodePort"] <= 32767
    assert (port["protocol"], port["targetPort"]) == ("TCP", 80)
    assert spec["clusterIPs"] == [spec["clusterIP"]]
    assert (spec["externalTrafficPolicy"], spec["allocateLoadBalancerNodePorts"]) == ("Cluster", True)
    assert (spec["ipFamilies"], spec["ipFamilyPolicy"]) == (["IPv4"], "SingleStack")
    assert made["status"] == {"loadBalancer": {}}


async def test_without_node_ports(api: Api) -> None:
    made = (await api.post(api.svcs, service("s", allocateLoadBalancerNodePorts=False))).ok(201)
    assert "nodePort" not in made["spec"]["ports"][0]
    plain = (await api.post(api.svcs, service("c", type="ClusterIP"))).ok(201)
    assert "nodePort" not in plain["spec"]["ports"][0]
    headless = (await api.post(api.svcs, service("h", type="ClusterIP", clusterIP="None"))).ok(201)
    assert headless["spec"]["clusterIPs"] == ["None"]
    external = (await api.post(api.svcs, service("e", type="ExternalName", externalName="example.com"))).ok(201)
    assert "clusterIP" not in external["spec"]


async def test_a_put_that_leaves_out_what_was_given_keeps_it(api: Api) -> None:
    made = (await api.post(api.svcs, service("s"))).ok(201)
    put = (await api.put(api.svcs + "/s", service("s"))).ok()
    assert put["spec"] == made["spec"]
    assert put["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_ports_and_addresses_are_not_given_twice(api: Api) -> None:
    first = (await api.post(api.svcs, service("s"))).ok(201)["spec"]
    held = {"name": "a", "port": 80, "nodePort": first["ports"][0]["nodePort"]}
    taken = await api.post(api.svcs, service("t", ports=[held]))
    taken.refused(
        422, "Invalid", f"spec.ports[0].nodePort: Invalid value: {held['nodePort']}: provided port is already allocated"
    )
    same_ip = await api.post(api.svcs, service("t", clusterIP=first["clusterIP"]))
    same_ip.refused(422, "Invalid", "provided IP is already allocated")
    outside = await api.post(api.svcs, service("t", ports=[{"port": 80, "nodePort": 80}]))
    outside.refused(422, "Invalid", "The range of valid ports is 30000-32767")
    (await api.delete(api.svcs + "/s")).ok()
    (await api.post(api.svcs, service("t", ports=[held], clusterIP=first["clusterIP"]))).ok(201)


async def test_a_refused_or_dry_write_takes_nothing(api: Api) -> None:
    port = {"name": "a", "port": 80, "nodePort": 32001}
    assert (await api.post(api.svcs, service("s", ports=[port]), dryRun="All")).code == 201
    (await api.post(api.svcs, service("s", ports=[port], type="Nope"))).refused(
        422, "Invalid", "spec.type: Unsupported"
    )
    (await api.post(api.svcs, service("s", ports=[port]))).ok(201)


async def test_changing_the_type_frees_and_wipes(api: Api) -> None:
    made = (await api.post(api.svcs, service("s", loadBalancerClass="example.com/x"))).ok(201)
    port = made["spec"]["ports"][0]["nodePort"]
    ingress = {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}}
    (await api.patch(api.svcs + "/s/status", ingress)).ok()
    changed = (await api.patch(api.svcs + "/s", {"spec": {"type": "ClusterIP"}})).ok()
    assert changed["status"] == {"loadBalancer": {}}
    for gone in ("loadBalancerClass", "allocateLoadBalancerNodePorts", "externalTrafficPolicy"):
        assert gone not in changed["spec"]
    assert "nodePort" not in changed["spec"]["ports"][0]
    assert changed["spec"]["clusterIP"] == made["spec"]["clusterIP"]
    refused = await api.patch(api.svcs + "/s/status", ingress)
    refused.refused(422, "Invalid", "status.loadBalancer.ingress: Forbidden: may only be used when")
    (await api.post(api.svcs, service("t", ports=[{"port": 1, "nodePort": port}]))).ok(201)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"ports": [{"port": 0}]}, "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive"),
        ({"ports": [{"port": 70000}]}, "spec.ports[0].port: Invalid value: 70000"),
        ({"ports": []}, "spec.ports: Required value"),
        ({"ports": [{"port": 1}, {"port": 2}]}, "spec.ports[0].name: Required value"),
        ({"ports": [{"name": "a", "port": 1}, {"name": "a", "port": 2}]}, 'spec.ports[1].name: Duplicate value: "a"'),
        ({"ports": [{"name": "a", "port": 1}, {"name": "b", "port": 1}]}, "spec.ports[1]: Duplicate value"),
        ({"ports": [{"name": "Bad_Name", "port": 1}]}, "spec.ports[0].name: Invalid value"),
        (
            {"ports": [{"port": 1, "protocol": "ICMP"}]},
            'Unsupported value: "ICMP": supported values: "SCTP", "TCP", "UDP"',
        ),
        ({"ports": [{"port": 1, "targetPort": "UPPER"}]}, "spec.ports[0].targetPort: Invalid value"),
        (
            {"type": "ClusterIP", "ports": [{"port": 1, "nodePort": 30100}]},
            "may not be used when `type` is 'ClusterIP'",
        ),
        ({"type": "ExternalName", "ports": []}, "spec.externalName: Required value"),
        ({"clusterIP": "None"}, "may not be set to 'None' for LoadBalancer services"),
        ({"type": "ClusterIP", "loadBalancerClass": "a/b"}, "spec.loadBalancerClass: Forbidden"),
        ({"selector": {"a": "not legal!"}}, "spec.selector: Invalid value"),
        ({"loadBalancerSourceRanges": ["x"]}, "must be a valid CIDR value"),
        ({"loadBalancerSourceRanges": ["10.0.0.5"]}, "must be a valid CIDR value"),
        ({"type": "ClusterIP", "loadBalancerSourceRanges": ["10.0.0.0/8"]}, "may only be used when `type` is"),
        ({"sessionAffinity": "Sometimes"}, "spec.sessionAffinity: Unsupported value"),
    ],
)
async def test_refusals(api: Api, spec: dict[str, Any], message: str) -> None:
    (await api.post(api.svcs, service("bad", **spec))).refused(422, "Invalid", message)


async def test_names_and_immutable_fields(api: Api) -> None:
    (await api.post(api.svcs, service("Bad"))).refused(422, "Invalid", "a lowercase RFC 1123 label must consist of")
    (await api.post(api.svcs, service("1st"))).ok(201)
    (await api.post(api.svcs, service("x" * 64))).refused(422, "Invalid", "must be no more than 63 characters")
    (await api.post(api.svcs, service("s", loadBalancerClass="example.com/x"))).ok(201)
    other = await api.patch(api.svcs + "/s", {"spec": {"loadBalancerClass": "example.com/y"}})
    other.refused(422, "Invalid", 'spec.loadBalancerClass: Invalid value: "example.com/y": may not change once set')
    (await api.patch(api.svcs + "/s", {"spec": {"clusterIP": "10.96.99.99"}})).refused(
        422, "Invalid", "may not change once set"
    )


async def test_local_traffic_has_a_health_check_port(api: Api) -> None:
    made = (await api.post(api.svcs, service("s", externalTrafficPolicy="Local"))).ok(201)
    assert made["spec"]["healthCheckNodePort"] != made["spec"]["ports"][0]["nodePort"]
    changed = (await api.patch(api.svcs + "/s", {"spec": {"externalTrafficPolicy": "Cluster"}})).ok()
    assert "healthCheckNodePort" not in changed["spec"]


@pytest.mark.req("L4-7")
async def test_a_source_range_that_is_not_canonical_is_stored_with_a_warning(api: Api) -> None:
    answer = await api.post(api.svcs, service("ranges", loadBalancerSourceRanges=["2001:DB8::/32", "10.1.0.0/16"]))
    assert answer.ok(201)["spec"]["loadBalancerSourceRanges"] == ["2001:DB8::/32", "10.1.0.0/16"]
    (warning,) = answer.headers.getall("Warning")
    assert "spec.loadBalancerSourceRanges[0]" in warning
    assert "2001:db8::/32" in warning
