"""Long values of a descriptor, which a digest stands for: clients and limiters compare the same
texts."""

from __future__ import annotations

from hashlib import blake2b

MAX_VALUE_BYTES = 64
"""The most bytes of a value that is used as it is. A longer one, such as a token, is replaced by
its digest on every front, so a key has one bucket."""
_DIGEST_BYTES = 16


def shortened(value: str) -> str:
    """Return a value, or its digest if it is too long or not UTF-8.

    Bytes that are not UTF-8 are those that `surrogateescape` stands for.
    """
    if len(value) <= MAX_VALUE_BYTES // 4 and value.isascii():
        return value
    data = value.encode("utf-8", "surrogateescape")
    try:
        data.decode()
        sound = True
    except UnicodeDecodeError:
        sound = False
    if sound and len(data) <= MAX_VALUE_BYTES:
        return value
    return f"#{blake2b(data, digest_size=_DIGEST_BYTES).hexdigest()}"
