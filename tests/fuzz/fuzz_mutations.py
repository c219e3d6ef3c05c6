"""Break an input in one to four ways: bytes anywhere, or, where it is JSON, one value in the tree."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

NASTY_BYTES = (
    b"", b"\x00", b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"\xf0\x9f\x98\x80", "²".encode(), "٣".encode(), b"\n",
    b"\r\n", b"%00", b"%2e%2e/", b"../", b"//", b"'", b'"', b"\\", b"\x1b[31m", b"-1", b"0", b"1e999", b"NaN",
    b"9" * 25, b"9" * 5_000, b" " * 300, b"\t" * 50, b"{", b"[", b"}", b"]", b":", b",", b"null", b"true", b"*a",
    b"&a ", b"!!",
)  # fmt: skip
NASTY_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 65_536, 2**31, 2**63, 2**64, -(2**63) - 1, 10**30, 0.5, 1e308, -0.0, "", " ", "0",
    "-1", "²", "\x00", "\ud83d", "a" * 300, "A" * 5_000, "9" * 5_000, "../..", "*", "~", "/", "\x1b[31m", "a\nb", [],
    {}, [None], [[]], {"": ""}, [{}], {"a": None}, ["x", "x"], {"$patch": "delete"}, {"$patch": "replace"}, [0] * 200,
)  # fmt: skip


def mutate(rng: random.Random, raw: bytes, corpus: Sequence[bytes], tokens: Sequence[bytes], max_bytes: int) -> bytes:
    """Return ``raw`` broken in some way, at most ``max_bytes`` long."""
    for _ in range(rng.choice((1, 1, 2, 4))):
        if rng.random() < 0.5:
            tree = _tree(raw)
            if tree is not None:
                raw = _encoded(_mutate_tree(rng, tree[0]))
                continue
        raw = rng.choice(_WAYS)(rng, raw, corpus, tokens)[:max_bytes]
    return raw[:max_bytes]


def _tree(raw: bytes) -> tuple[Any] | None:
    try:
        return (msgspec.json.decode(raw),)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _encoded(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (RecursionError, UnicodeEncodeError):
        return b"[" * 2_000


def _mutate_tree(rng: random.Random, value: Any) -> Any:
    """Return ``value`` with one of its places changed."""
    if isinstance(value, dict) and value and rng.random() < 0.8:
        key = rng.choice(list(value))
        changed = dict(value)
        chance = rng.random()
        if chance < 0.7:
            changed[key] = _mutate_tree(rng, value[key])
        elif chance < 0.8:
            del changed[key]
        elif chance < 0.9:
            changed[rng.choice(list(value)) + rng.choice(("", "x", "\x00"))] = changed.pop(key)
        else:
            changed[rng.choice(("", "x", "metadata", "spec", "status", "$patch"))] = value[key]
        return changed
    if isinstance(value, list) and value and rng.random() < 0.8:
        place = rng.randrange(len(value))
        chance = rng.random()
        if chance < 0.7:
            return [*value[:place], _mutate_tree(rng, value[place]), *value[place + 1 :]]
        if chance < 0.85:
            return [*value, value[place]]  # the same key twice
        return value * rng.choice((0, 2, 20))
    return _nested(rng) if rng.random() < 0.03 else rng.choice(NASTY_VALUES)


def _nested(rng: random.Random) -> Any:
    value: Any = "x"
    deep = rng.choice((10, 100, 900))
    for _ in range(deep):
        value = [value] if rng.random() < 0.5 else {"a": value}
    return value


def _cut(rng: random.Random, raw: bytes, _corpus: Sequence[bytes], _tokens: Sequence[bytes]) -> bytes:
    start = rng.randint(0, len(raw))
    return raw[:start] + raw[rng.randint(start, len(raw)) :]


def _flip(rng: random.Random, raw: bytes, _corpus: Sequence[bytes], _tokens: Sequence[bytes]) -> bytes:
    if not raw:
        return b"\x00"
    place = rng.randrange(len(raw))
    return raw[:place] + bytes((raw[place] ^ (1 << rng.randrange(8)),)) + raw[place + 1 :]


def _put(rng: random.Random, raw: bytes, _corpus: Sequence[bytes], tokens: Sequence[bytes]) -> bytes:
    word = rng.choice((*tokens, *NASTY_BYTES)) if rng.random() < 0.5 or not tokens else rng.choice(tokens)
    place = rng.randint(0, len(raw))
    return raw[:place] + word + raw[rng.choice((place, min(len(raw), place + len(word)))) :]


def _repeat(rng: random.Random, raw: bytes, _corpus: Sequence[bytes], _tokens: Sequence[bytes]) -> bytes:
    start = rng.randint(0, len(raw))
    end = min(len(raw), start + rng.choice((1, 2, 8, 64)))
    return raw[:end] + raw[start:end] * rng.choice((1, 10, 100, 2_000)) + raw[end:]


def _splice(rng: random.Random, raw: bytes, corpus: Sequence[bytes], _tokens: Sequence[bytes]) -> bytes:
    other = rng.choice(corpus)
    return raw[: rng.randint(0, len(raw))] + other[rng.randint(0, len(other)) :]


_Way = Callable[[random.Random, bytes, Sequence[bytes], Sequence[bytes]], bytes]
_WAYS: tuple[_Way, ...] = (_cut, _flip, _put, _put, _repeat, _splice)
