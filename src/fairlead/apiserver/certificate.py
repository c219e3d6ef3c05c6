"""How does the server show who it is? A self-signed certificate for its own address, made without any tool.

kubectl sends its token over TLS only, so a server for kubectl needs a certificate. The key is ECDSA P-256. The one
secret operation here is signing the certificate itself, once, at its making; every handshake is OpenSSL's work.

In: host names and the time. Out: PEM texts. Source: RFC 5280 (certificate), RFC 5915 (key), FIPS 186-5 (signature).
"""

from __future__ import annotations

import base64
import ipaddress
import secrets
from datetime import UTC, datetime
from hashlib import sha1, sha256
from typing import NamedTuple

VALID_S = 10 * 365 * 86400
_P = 0xFFFFFFFF00000001000000000000000000000000FFFFFFFFFFFFFFFFFFFFFFFF
_N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_G = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)
_Point = tuple[int, int] | None


class Certificate(NamedTuple):
    """A certificate and its key, both PEM."""

    pem: str
    key_pem: str


def _add(a: _Point, b: _Point) -> _Point:
    if a is None or b is None:
        return a or b
    if a[0] == b[0] and (a[1] + b[1]) % _P == 0:
        return None
    slope = (3 * a[0] * a[0] - 3) * pow(2 * a[1], -1, _P) if a == b else (b[1] - a[1]) * pow(b[0] - a[0], -1, _P)
    x = (slope * slope - a[0] - b[0]) % _P
    return x, (slope * (a[0] - x) - a[1]) % _P


def _times(scalar: int) -> tuple[int, int]:
    total: _Point = None
    power: _Point = _G
    while scalar:
        if scalar & 1:
            total = _add(total, power)
        power = _add(power, power)
        scalar >>= 1
    if total is None:  # pragma: no cover - only for multiples of the group order
        raise ValueError("the scalar is a multiple of the group order")
    return total


def _sign(message: bytes, key: int) -> bytes:
    digest = int.from_bytes(sha256(message).digest(), "big")
    while True:
        nonce = 1 + secrets.randbelow(_N - 1)
        r = _times(nonce)[0] % _N
        s = pow(nonce, -1, _N) * (digest + r * key) % _N
        if r and s:
            return _seq(_int(r), _int(s))


def _tlv(tag: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    if len(body) < 0x80:
        return bytes([tag, len(body)]) + body
    size = len(body).to_bytes((len(body).bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(size)]) + size + body


def _seq(*parts: bytes) -> bytes:
    return _tlv(0x30, *parts)


def _int(value: int) -> bytes:
    return _tlv(0x02, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def _oid(text: str) -> bytes:
    first, second, *rest = (int(part) for part in text.split("."))
    body = bytearray([first * 40 + second])
    for number in rest:
        chunk = [number & 0x7F]
        while number := number >> 7:
            chunk.append(number & 0x7F | 0x80)
        body += bytes(reversed(chunk))
    return _tlv(0x06, bytes(body))


def _time(moment: float) -> bytes:
    return _tlv(0x17, datetime.fromtimestamp(moment, UTC).strftime("%y%m%d%H%M%SZ").encode())


def _extension(oid: str, value: bytes, *, critical: bool = False) -> bytes:
    return _seq(_oid(oid), *([_tlv(0x01, b"\xff")] if critical else []), _tlv(0x04, value))


def _alternative(host: str) -> bytes:
    try:
        return _tlv(0x87, ipaddress.ip_address(host).packed)
    except ValueError:
        return _tlv(0x82, host.encode())


def _pem(label: str, der: bytes) -> str:
    text = base64.encodebytes(der).decode().replace("\n", "")
    lines = "\n".join(text[start : start + 64] for start in range(0, len(text), 64))
    return f"-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n"


def make_certificate(hosts: list[str], now: float) -> Certificate:
    """Return a certificate for ``hosts`` (names or addresses) that is its own authority."""
    key = 1 + secrets.randbelow(_N - 1)
    x, y = _times(key)
    point = b"\x04" + x.to_bytes(32, "big") + y.to_bytes(32, "big")
    curve, algorithm = _oid("1.2.840.10045.3.1.7"), _seq(_oid("1.2.840.10045.4.3.2"))
    name = _seq(_tlv(0x31, _seq(_oid("2.5.4.3"), _tlv(0x0C, b"fairlead-apiserver"))))
    extensions = _seq(
        _extension("2.5.29.19", _seq(_tlv(0x01, b"\xff")), critical=True),
        _extension("2.5.29.15", _tlv(0x03, b"\x02\x84"), critical=True),  # digitalSignature, keyCertSign
        _extension("2.5.29.37", _seq(_oid("1.3.6.1.5.5.7.3.1"))),
        _extension("2.5.29.14", _tlv(0x04, sha1(point).digest())),  # noqa: S324 - an identifier, by RFC 5280
        _extension("2.5.29.17", _seq(*(_alternative(host) for host in hosts))),
    )
    body = _seq(
        _tlv(0xA0, _int(2)),
        _int(secrets.randbits(120) | 1),
        algorithm,
        name,
        _seq(_time(now - 3600), _time(now + VALID_S)),
        name,
        _seq(_seq(_oid("1.2.840.10045.2.1"), curve), _tlv(0x03, b"\x00" + point)),
        _tlv(0xA3, extensions),
    )
    signed = _seq(body, algorithm, _tlv(0x03, b"\x00" + _sign(body, key)))
    secret = _seq(
        _int(1), _tlv(0x04, key.to_bytes(32, "big")), _tlv(0xA0, curve), _tlv(0xA1, _tlv(0x03, b"\x00" + point))
    )
    return Certificate(_pem("CERTIFICATE", signed), _pem("EC PRIVATE KEY", secret))
