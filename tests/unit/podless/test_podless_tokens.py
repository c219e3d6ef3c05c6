"""Service account tokens."""

from podless.auth.identity import TokenSigner


def test_tokens_are_bound_to_key_and_time() -> None:
    moment = [1000.0]
    signer = TokenSigner(b"k" * 32, lambda: moment[0])
    token = signer.sign({"sub": "x", "exp": 1010})
    assert (signer.verify(token) or {})["sub"] == "x"
    assert TokenSigner(b"o" * 32, lambda: moment[0]).verify(token) is None
    head, body, mac = token.split(".")
    for forged in ("", "a", f"{head}.{body}.", f"{head}.{body}x.{mac}", f"{body}.{head}.{mac}", "é.é.é"):
        assert signer.verify(forged) is None
    moment[0] = 1010
    assert signer.verify(token) is None


def test_a_token_from_before_the_clock_was_set_back_is_still_good() -> None:
    """Every key that was issued while the clock was an hour ahead was refused for an hour."""
    moment = [5000.0]
    signer = TokenSigner(b"k" * 32, lambda: moment[0])
    token = signer.sign({"sub": "x", "iat": 5000, "nbf": 5000, "exp": 8600})
    moment[0] -= 3600
    assert signer.verify(token) is not None
