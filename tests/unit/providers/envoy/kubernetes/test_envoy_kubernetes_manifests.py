"""Names, identities and hashes of our objects."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from fairlead.providers.envoy.kubernetes.manifests import ManifestRef, dns_label, hash_of, hashed, ref_of

MANIFEST = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "n", "namespace": "ns"}, "data": {"a": "1"}}


@given(st.text(max_size=90), st.text(max_size=20))
def test_every_name_becomes_a_label_that_another_name_has_not(name: str, unique: str) -> None:
    label = dns_label("envoy", name, unique=unique)
    assert re.fullmatch(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?", label)
    assert label != dns_label("envoy", name, unique=unique + "x")


def test_the_hash_is_of_the_content_and_is_read_back() -> None:
    first, again = hashed(MANIFEST), hashed(dict(reversed(MANIFEST.items())))
    assert hash_of(first) == hash_of(again)
    assert hash_of(hashed({**MANIFEST, "data": {"a": "2"}})) != hash_of(first)
    assert ref_of(first) == ManifestRef("v1", "ConfigMap", "ns", "n")
    assert "annotations" not in MANIFEST["metadata"]
