"""The fields of a change: named as in the spec, both values, and no credential; the manager that set them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairlead.api.httploadbalancer import LoadBalancerRoute
from fairlead.api.loadbalancer import LoadBalancer
from fairlead.api.tcploadbalancer import TCPLoadBalancer
from fairlead.hub.inspect.audit import ManagedFieldsEntry, field_changes, manager_of
from fairlead.runtime.logs import REDACTED

pytestmark = pytest.mark.req("F-30")


def changes_between(of: type[Any], *objects: dict[str, Any]) -> list[Any]:
    read = [
        msgspec.convert({"metadata": {"generation": at, **obj.pop("metadata", {})}, "spec": obj}, of)
        for at, obj in enumerate(objects)
    ]
    return list(field_changes(*read))


@pytest.mark.parametrize(
    ("old", "new", "fields"),
    [
        (
            [{"port": 80}],
            [{"port": 81, "name": "http"}],
            [("ports[0].port", "80", "81"), ("ports[0].name", "", "http")],
        ),
        (
            [{"name": "a", "port": 80}, {"name": "b", "port": 81}],
            [{"name": "b", "port": 82}],
            [("ports[a].name", "a", ""), ("ports[a].port", "80", ""), ("ports[b].port", "81", "82")],
        ),
        ([{"port": 80}], [{"port": 80}], []),
    ],
)
def test_fields_of_lists_are_named_by_name_or_place(old, new, fields):
    assert set(fields) <= set(changes_between(TCPLoadBalancer, {"ports": old}, {"ports": new}))
    assert bool(fields) == bool(changes_between(TCPLoadBalancer, {"ports": old}, {"ports": new}))


def test_no_credential_is_in_a_change():
    lb: dict[str, Any] = {"listeners": [{"port": 80}]}
    headers = {"requestHeaders": {"set": [{"name": "X-Key", "value": "hunter3"}]}}
    rule = {"filters": headers, "matches": [{"queryParams": [{"name": "key", "value": "hunter7"}]}]}
    annotations = {"fairlead.dev/api-token": "hunter5", "example.com/a": "hunter6"}
    shown = [
        *changes_between(LoadBalancer, {**lb, "parameters": {"user": "me"}}, {**lb, "parameters": {"user": "hunter1"}}),
        *changes_between(LoadBalancerRoute, {"loadBalancer": "a"}, {"loadBalancer": "a", "rules": [rule]}),
        *changes_between(
            TCPLoadBalancer,
            {"ports": [{"port": 80}], "metadata": {"annotations": {"fairlead.dev/x": "https://me:hunter4@host/"}}},
            {"ports": [{"port": 80}], "metadata": {"annotations": annotations}},
        ),
    ]
    assert "hunter" not in repr(shown)
    assert ("parameters.user", REDACTED, REDACTED) in shown
    assert ("rules[0].filters.requestHeaders.set[X-Key].value", "", REDACTED) in shown
    assert {name for name, _, _ in shown} >= {"metadata.annotations.fairlead.dev/api-token"}
    assert not any("example.com" in name for name, _, _ in shown)


def test_the_manager_is_the_last_one_of_the_fields():
    ports, drain = {"f:spec": {"f:ports": {}}}, {"f:spec": {"f:drain": {}}}
    managers = (
        ManagedFieldsEntry("kubectl", "2030-01-01T00:00:01Z", fields_v1=ports),
        ManagedFieldsEntry("helm", "2030-01-01T00:00:03Z", fields_v1=drain),
        ManagedFieldsEntry("hub", "2030-01-01T00:00:09Z", "status", {"f:status": {}}),
    )
    assert manager_of(managers, (("ports[0].port", "80", "81"),)).manager == "kubectl"
    assert manager_of(managers, (("drain", "", "5s"),)).manager == "helm"
    assert manager_of(managers, (("region", "eu", ""),)).manager == ""  # a removal has no owner
    assert manager_of(managers, ()).manager == "kubectl"  # created the object
    assert manager_of((), ()) == ManagedFieldsEntry()
