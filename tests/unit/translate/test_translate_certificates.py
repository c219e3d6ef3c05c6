"""A Secret of type kubernetes.io/tls becomes a certificate, or a sentence that shows no key."""

from __future__ import annotations

import base64

import pytest

from fairlead.api.kubernetes import Secret
from fairlead.api.meta import ObjectMeta
from fairlead.translate.certificates import certificate_of, pair_digest
from fairlead_demo.worlds.certificates import self_signed

CHAIN, KEY = self_signed("shop.example.com")
_, OTHER_KEY = self_signed("shop.example.com")


def secret(chain: bytes, key: bytes) -> Secret:
    data = {"tls.crt": base64.b64encode(chain).decode(), "tls.key": base64.b64encode(key).decode()}
    return Secret(metadata=ObjectMeta(name="shop", namespace="tenant-east"), data=data)


@pytest.mark.req("K-53")
def test_a_pair_that_belongs_together() -> None:
    made = certificate_of("shop", secret(CHAIN, KEY))
    assert (made.name, made.chain, made.key) == ("shop", CHAIN, KEY)
    assert made.digest == pair_digest(CHAIN, KEY)


def test_the_digest_differs_with_the_chain_and_with_the_key_and_shows_neither() -> None:
    assert len({pair_digest(CHAIN, KEY), pair_digest(CHAIN, OTHER_KEY), pair_digest(KEY, CHAIN)}) == 3
    assert len(pair_digest(CHAIN, KEY)) == 32


@pytest.mark.req("K-53")
@pytest.mark.parametrize(
    ("chain", "key", "problem"),
    [
        pytest.param(
            CHAIN, OTHER_KEY, "tls.key is not the key of the first certificate in tls.crt", id="another's key"
        ),
        pytest.param(KEY, KEY, "tls.crt has no certificate in PEM", id="no certificate"),
        pytest.param(b"", KEY, "tls.crt has no certificate in PEM", id="nothing"),
        pytest.param(CHAIN, CHAIN, "tls.key has no private key in PEM without a password", id="no key"),
    ],
)
def test_a_mismatched_pair_is_rejected_with_a_message(chain: bytes, key: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match="tls") as refused:
        certificate_of("shop", secret(chain, key))
    assert str(refused.value) == problem


def test_an_entry_that_is_not_base64_is_named() -> None:
    broken = Secret(metadata=ObjectMeta(name="shop"), data={"tls.crt": "*", "tls.key": "*"})
    with pytest.raises(ValueError, match=r"tls\.crt is not base64"):
        certificate_of("shop", broken)
