"""Until when certificates in Secrets at the hub last, and where each is renewed."""

from __future__ import annotations

import base64

import pytest
from cryptography import x509

from fairlead.doctor.gather import certificate_ending
from fairlead_demo.worlds.certificates import self_signed

CHAIN = self_signed("shop.example.com")[0]


def secret(annotations=None, *, name="copy", data=True):
    fields = {"tls.crt": base64.b64encode(CHAIN).decode()} if data else None
    return {"metadata": {"namespace": "tenant-east", "name": name, "annotations": annotations}, "data": fields}


def test_the_copy_of_a_members_secret_is_renewed_there():
    ending = certificate_ending(secret({"fairlead.dev/origin": "east/shop/shop-certificate"}))
    assert ending is not None
    assert ending.ends == x509.load_pem_x509_certificate(CHAIN).not_valid_after_utc
    assert ending.where == "Secret/tenant-east/copy"
    expected = "kubectl get secret -n shop shop-certificate   in member east: renew it there, the copy follows"
    assert ending.renew == expected


@pytest.mark.parametrize("annotations", [None, {"fairlead.dev/origin": "east/fairlead"}])
def test_certificates_without_a_copy_are_renewed_by_the_hub(annotations):
    ending = certificate_ending(secret(annotations))
    assert ending is not None
    assert ending.renew.startswith("fairlead hub ")


@pytest.mark.parametrize("of", [secret(data=False), secret({"fairlead.dev/order": "https://acme/1"})])
def test_what_has_no_certificate_or_a_check_of_its_own_is_left_out(of):
    assert certificate_ending(of) is None
