"""Which object for external-dns has which records, and whose they are."""

from __future__ import annotations

import msgspec

from fairlead.api.hostname import DNSEndpoint
from fairlead.api.kubernetes import Service
from fairlead.providers.zones.external_dns.annotations_provider import PREFIXES, ServiceForm
from fairlead.providers.zones.external_dns.provider import (
    EndpointForm,
    body,
    changed,
    held,
    is_ours,
    joined,
    object_name,
)
from fairlead.providers.zones.plan import Edit, Holder, Mark, RRKey, RRSet, host_of, mark_key, mark_text

ENDPOINTS, SERVICES = EndpointForm(), ServiceForm()
HOST = "www.example.test"
MARK = mark_text(Mark(Holder("hub-1", "aaaa"), "192.0.2.1"))
ADDED = [Edit(mark_key(HOST, "A"), MARK, 60, True), Edit(RRKey(HOST, "A"), "192.0.2.1", 60, True)]


def written(rrsets, **more) -> DNSEndpoint:
    return msgspec.convert(body(ENDPOINTS, HOST, rrsets, **more), DNSEndpoint)


def test_written_records_are_read_back_with_marks():
    rrsets = changed({}, ADDED)
    obj = written(rrsets)
    assert is_ours(obj)
    there = held(ENDPOINTS, obj).rrsets
    assert {key: rrset.values for key, rrset in there.items()} == {key: rrset.values for key, rrset in rrsets.items()}
    assert changed(there, [edit._replace(add=False) for edit in ADDED]) == {}


def test_marks_are_not_separate_records():
    (endpoint,) = written(changed({}, ADDED)).spec.endpoints or []
    assert (endpoint.dns_name, endpoint.record_type, endpoint.record_ttl) == (HOST, "A", 60)


def test_records_of_others_have_no_marks_and_other_types_are_not_read():
    obj = msgspec.convert(
        {
            "metadata": {"annotations": {"fairlead.dev/marks": msgspec.json.encode({"A": [MARK]}).decode()}},
            "spec": {
                "endpoints": [
                    {"dnsName": "WWW.example.test.", "recordType": "A", "targets": ["192.0.2.1"]},
                    {"dnsName": HOST, "recordType": "SRV", "targets": ["0 0 1 x.example.test"]},
                ]
            },
        },
        DNSEndpoint,
    )
    assert held(ENDPOINTS, obj).rrsets == {RRKey(HOST, "A"): RRSet(frozenset({"192.0.2.1"}), 0)}


def test_an_annotation_that_cannot_be_read_makes_no_record_ours():
    obj = written(changed({}, ADDED))
    metadata = msgspec.structs.replace(obj.metadata, annotations={"fairlead.dev/marks": "{"})
    assert set(held(ENDPOINTS, msgspec.structs.replace(obj, metadata=metadata)).rrsets) == {RRKey(HOST, "A")}


def test_null_lists_of_a_real_api_server_are_empty():
    assert held(ENDPOINTS, DNSEndpoint()).rrsets == {}
    assert joined([held(ENDPOINTS, DNSEndpoint())]) == {}


def test_objects_of_one_name_are_one_set():
    first, second = (
        held(ENDPOINTS, written({RRKey(HOST, "A"): RRSet(frozenset({value}), 60)}))
        for value in ("192.0.2.1", "192.0.2.2")
    )
    assert joined([first, second])[RRKey(HOST, "A")].values == {"192.0.2.1", "192.0.2.2"}


def test_names_of_objects_differ_where_hosts_differ():
    hosts = ["a-b.example.test", "a.b.example.test", "*.example.test", "_x.example.test", "x.example.test", "a" * 63]
    for form in (ENDPOINTS, SERVICES):
        names = {object_name(form, host) for host in hosts}
        assert len(names) == len(hosts)
        assert all(len(name) <= 63 and name == name.lower() and name[0].isalnum() for name in names)
    assert object_name(SERVICES, "1.example.test")[0].isalpha(), "the name of a Service begins with a letter"


def test_the_version_that_was_read_is_the_one_that_is_replaced():
    assert written(changed({}, ADDED), version="7").metadata.resource_version == "7"
    assert [host_of(edit) for edit in ADDED] == [HOST, HOST]


def annotated(rrsets) -> Service:
    return msgspec.convert(body(SERVICES, HOST, rrsets), Service)


def test_annotations_are_read_back_with_their_marks():
    rrsets = changed({}, [*ADDED, Edit(RRKey(HOST, "AAAA"), "2001:db8::1", 60, True)])
    there = held(SERVICES, annotated(rrsets)).rrsets
    assert {key: rrset.values for key, rrset in there.items()} == {key: rrset.values for key, rrset in rrsets.items()}
    assert there[RRKey(HOST, "A")].ttl == 60


def test_annotations_have_the_prefix_of_every_release():
    obj = annotated({RRKey(HOST, "CNAME"): RRSet(frozenset({"lb.example.net"}), 30)})
    for prefix in PREFIXES:
        assert [obj.annotation(f"{prefix}{name}") for name in ("hostname", "target", "ttl")] == [
            HOST,
            "lb.example.net",
            "30",
        ]


def test_a_service_without_annotations_has_no_records():
    assert held(SERVICES, Service()).rrsets == {}
