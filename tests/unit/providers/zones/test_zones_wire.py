"""Questions and answers as dnspython, which writes and reads all of a message, has them."""

from __future__ import annotations

import dns.exception
import dns.flags
import dns.message
import dns.rcode
import dns.rrset
import pytest

from fairlead.providers.zones.answers import absolute, query
from fairlead.providers.zones.connection import read_answer

NAMES = ["www.example.test", "*.shop.example.test", "_acme-challenge.x.example.test", f"{'a' * 63}.example.test"]


@pytest.mark.parametrize("type_", ["A", "AAAA", "CNAME", "TXT", "SOA"])
@pytest.mark.parametrize("name", NAMES)
def test_a_question_is_the_one_that_dnspython_writes(name: str, type_: str) -> None:
    question = query(name, type_)
    question.id = 4711
    theirs = dns.message.make_query(f"{name}.", type_, flags=0, id=4711)
    assert question.to_wire(max_size=65535) == theirs.to_wire()


def test_each_question_has_an_id_of_its_own() -> None:
    assert len({query("www.example.test", "A").id for _ in range(64)}) > 32


def answered(*records: tuple[str, str, list[str]], rcode: dns.rcode.Rcode = dns.rcode.NOERROR) -> bytes:
    answer = dns.message.make_response(dns.message.make_query("www.example.test.", "A", id=7))
    answer.flags |= dns.flags.AA
    answer.set_rcode(rcode)
    for name, type_, values in records:
        answer.answer.append(dns.rrset.from_text_list(name, 60, "IN", type_, values))
    answer.authority.append(dns.rrset.from_text("example.test.", 300, "IN", "NS", "ns.example.test."))
    answer.additional.append(dns.rrset.from_text("ns.example.test.", 300, "IN", "A", "192.0.2.53"))
    return answer.to_wire()


@pytest.mark.parametrize(
    "records",
    [
        [],
        [("www.example.test.", "A", ["192.0.2.1", "192.0.2.2"])],
        [("WWW.example.test.", "CNAME", ["lb.example.net."]), ("lb.example.net.", "A", ["192.0.2.1"])],
        [("www.example.test.", "TXT", ['"heritage=fairlead" "more"', '"x"'])],
        [("www.example.test.", "AAAA", ["2001:db8::1"])],
        [("example.test.", "SOA", ["ns.example.test. hostmaster.example.test. 7 3600 600 86400 60"])],
    ],
    ids=["nothing", "A", "CNAME", "TXT", "AAAA", "SOA"],
)
def test_an_answer_is_what_dnspython_reads_of_it(records: list[tuple[str, str, list[str]]]) -> None:
    raw = answered(*records)
    theirs, ours = dns.message.from_wire(raw), read_answer(raw)
    assert ours.answer == theirs.answer
    assert [each.ttl for each in ours.answer] == [each.ttl for each in theirs.answer]
    assert (ours.id, ours.flags, ours.rcode()) == (theirs.id, theirs.flags, theirs.rcode())
    assert all(
        each.name == absolute("www.example.test") for each in ours.answer[:1] if each.name.labels[0] != b"example"
    )


@pytest.mark.parametrize(("flags", "change"), [(dns.flags.QR, "cleared"), (dns.flags.TC, "set")])
@pytest.mark.parametrize("records", [[], [("www.example.test.", "A", ["192.0.2.1"])]])
def test_no_answer_and_a_truncated_one_say_nothing(
    flags: dns.flags.Flag, change: str, records: list[tuple[str, str, list[str]]]
) -> None:
    raw = bytearray(answered(*records))
    raw[2:4] = (int.from_bytes(raw[2:4], "big") ^ int(flags)).to_bytes(2, "big")
    assert bool(dns.message.from_wire(bytes(raw), ignore_trailing=True).flags & flags) is (change == "set")
    with pytest.raises(dns.exception.FormError):
        read_answer(bytes(raw))


def test_a_refusal_is_read() -> None:
    assert read_answer(answered(rcode=dns.rcode.REFUSED)).rcode() == dns.rcode.REFUSED


@pytest.mark.parametrize("cut", [13, 30, 40, 45])
def test_an_answer_that_ends_too_soon_is_none(cut: int) -> None:
    with pytest.raises(dns.exception.DNSException):
        read_answer(answered(("www.example.test.", "A", ["192.0.2.1"]))[:cut])
