"""Reads the time at which a certificate expires: Python's `ssl` reads it of other hosts'
certificates only.

A certificate is DER (X.690): elements of a tag, a length and contents. `notAfter` is the second
time of `validity`, which follows version, serial number, algorithm and issuer (RFC 5280, 4.1).
"""

from __future__ import annotations

import re
from datetime import datetime, timezone
from ssl import PEM_cert_to_DER_cert

_PEM = re.compile("-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_VERSION, _UTC_TIME = 0xA0, 0x17
_FIRST_CENTURY = 50
"""Two-digit years from this one on are the years 1950 to 1999."""


def expiry(pem: str) -> float:
    """Unix time at which the first certificate of a text expires: the one that a server shows.

    Raises:
        ValueError: there is none.
    """
    found = _PEM.search(pem)
    if found is None:
        raise ValueError("must have certificates in PEM form")
    try:
        return _not_after(PEM_cert_to_DER_cert(found[0]))
    except IndexError:
        raise ValueError("must have a certificate with a date") from None


def _not_after(der: bytes) -> float:
    _, at, _ = _element(der, 0)
    _, at, _ = _element(der, at)
    for _ in range(4 if der[at] == _VERSION else 3):
        _, _, at = _element(der, at)
    _, at, _ = _element(der, at)
    _, _, at = _element(der, at)
    tag, start, end = _element(der, at)
    text = der[start:end].decode("ascii")
    if tag == _UTC_TIME:
        text = f"{19 if int(text[:2]) >= _FIRST_CENTURY else 20}{text}"
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=timezone.utc).timestamp()


def _element(der: bytes, at: int) -> tuple[int, int, int]:
    """The tag of the element there, and where its contents begin and end."""
    size, start = der[at + 1], at + 2
    if size & 0x80:
        start += size & 0x7F
        size = int.from_bytes(der[at + 2 : start], "big")
    return der[at], start, start + size
