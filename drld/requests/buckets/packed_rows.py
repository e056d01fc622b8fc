"""Packed rows by key: a hash table that takes about 30 bytes a key beside its row.

A `dict` and its keys, which are objects, take 90 to 130 bytes. It also stops for 30 ms when it
grows to a million keys. This table uses linear hashing (Litwin, *Linear hashing: a new tool for
file and table addressing*, VLDB 1980): it grows and shrinks by one bucket, so no call takes longer
than to split or join one.

With n buckets and 2^k <= n < 2^(k + 1), a key is in the bucket of its lowest k + 1 bits, or of its
lowest k bits if there is no such bucket. So a new bucket n takes keys from one bucket alone: the
one whose number is n without its highest bit. Keys are hashes under a secret (`keys`), so any bits
of them spread them evenly.

A bucket is a list: its keys as one `bytes`, 8 bytes each, and then their rows in the same order.
One call of `bytes.find` searches the keys.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import chain

from drld.requests.buckets.bucket import Key

_KEY_BYTES = 8
_ORDER = sys.byteorder
_MOST = 24
"""The mean number of rows of a bucket above which the table grows: a search takes 0.1 us."""
_FEW = 12
"""The mean number of rows of a bucket below which the table shrinks."""


class PackedRows:
    """Rows, each some bytes, by keys of 64 bits."""

    __slots__ = ("_ahead", "_buckets", "_count", "_hand", "_mask")

    def __init__(self) -> None:
        self._buckets: list[list[bytes]] = [[b""]]
        self._mask = 1
        """The lowest k + 1 bits."""
        self._count = 0
        self._hand = 0
        """The bucket that `turn` visited last."""
        self._ahead = 0
        """The rows that `turn` has returned beyond those that were asked for."""

    def __len__(self) -> int:
        """The number of rows."""
        return self._count

    def __iter__(self) -> Iterator[Key]:
        """Return an iterator over the keys that are here now; the table may change meanwhile.

        It holds the keys as the buckets had them, 8 bytes each, and shares them with the buckets.
        """
        packed = [bucket[0] for bucket in self._buckets]
        return chain.from_iterable(memoryview(keys).cast("Q") for keys in packed)

    def _bucket(self, key: Key) -> list[bytes]:
        """Return the bucket that has a key, if any has it."""
        buckets, mask = self._buckets, self._mask
        number = key & mask
        return buckets[number if number < len(buckets) else number & (mask >> 1)]

    def get(self, key: Key) -> bytes | None:
        """Return the row of a key; None: there is none."""
        # `_bucket` and `_place` in place: calls cost more than they do.
        buckets, mask = self._buckets, self._mask
        number = key & mask
        bucket = buckets[number if number < len(buckets) else number & (mask >> 1)]
        at = bucket[0].find(key.to_bytes(_KEY_BYTES, _ORDER))
        if at % _KEY_BYTES == 0:
            return bucket[at // _KEY_BYTES + 1]
        place = _place(bucket[0], key.to_bytes(_KEY_BYTES, _ORDER))
        return bucket[place] if place else None

    def put(self, key: Key, row: bytes) -> None:
        """Set the row of a key."""
        bucket, packed = self._bucket(key), key.to_bytes(_KEY_BYTES, _ORDER)
        if place := _place(bucket[0], packed):
            bucket[place] = row
            return
        bucket[0] += packed
        bucket.append(row)
        self._count += 1
        if self._count > _MOST * len(self._buckets):
            self._grow()

    def drop(self, key: Key) -> None:
        """Remove the row of a key; there must be one."""
        bucket = self._bucket(key)
        keys = bucket[0]
        place = _place(keys, key.to_bytes(_KEY_BYTES, _ORDER))
        end = _KEY_BYTES * place
        bucket[0] = keys[: end - _KEY_BYTES] + keys[end:]
        del bucket[place]
        self._count -= 1
        if self._count < _FEW * (len(self._buckets) - 1):
            self._shrink()

    def turn(self, rows: int) -> list[tuple[Key, bytes]]:
        """Return the keys and rows of the next buckets in turn: this many rows in the mean of many
        calls, or all.

        Buckets are visited whole. The rows beyond `rows` count for the next calls, which may return
        none. A key is missed for one turn at most while the table grows or shrinks.
        """
        found: list[tuple[Key, bytes]] = []
        least = rows - self._ahead
        for _ in range(len(self._buckets)):
            if len(found) >= least:
                break
            self._hand = self._hand + 1 if self._hand + 1 < len(self._buckets) else 0
            found += _items(self._buckets[self._hand])
        self._ahead = max(len(found) - least, 0)
        return found

    def _grow(self) -> None:
        """Add a bucket, with the keys that now belong to it."""
        number = len(self._buckets)
        old = self._buckets[_parent(number)]
        made = [b""]
        self._buckets.append(made)
        self._resize()
        rows = [*_items(old)]
        old[:] = [b""]
        for key, row in rows:
            bucket = self._bucket(key)
            bucket[0] += key.to_bytes(_KEY_BYTES, _ORDER)
            bucket.append(row)

    def _shrink(self) -> None:
        """Remove the last bucket; its keys go back to where they came from."""
        keys, *rows = self._buckets.pop()
        self._resize()
        into = self._buckets[_parent(len(self._buckets))]
        into[0] += keys
        into += rows

    def _resize(self) -> None:
        self._mask = (1 << len(self._buckets).bit_length()) - 1


def _parent(number: int) -> int:
    """Return the bucket from which bucket `number` takes its keys; there is none for 0."""
    return number ^ (1 << (number.bit_length() - 1))


def _place(keys: bytes, packed: bytes) -> int:
    """Return the place of a key's row in the bucket with these keys; 0: it is not there."""
    at = keys.find(packed)
    while at > 0 and at % _KEY_BYTES:
        # These are bytes of two keys.
        at = keys.find(packed, at + 1)
    return at // _KEY_BYTES + 1


def _items(bucket: list[bytes]) -> Iterator[tuple[Key, bytes]]:
    """Return the keys of a bucket, as integers, with their rows."""
    return zip(memoryview(bucket[0]).cast("Q"), bucket[1:], strict=True)
