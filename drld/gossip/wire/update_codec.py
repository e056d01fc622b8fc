"""The codecs of updates: 20 bytes of UDP payload (docs/wire-format.md).

A datagram holds one update of 16 bytes or several, of different limits, and then a tag of 4 bytes.
The IPv4 packet of a single update is 48 bytes long, as in the paper (section 3.1).

Every fabric has updates of its own, and so a kind and a codec of its own: a subclass of
`UpdateCodec`. All begin with the same fields (`drld.model.Update`). A fabric defines 4 bits, and
the last 4 bytes. The table of a codec is the format: encoder and decoder both walk it, and so do
the tests.

The first two bytes, the *head*, have few values. Each is written and read once, and remembered: a
limiter exchanges thousands of updates a tick.
"""

from __future__ import annotations

import struct
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from drld.errors import WireError
from drld.gossip.wire.layout import Table, Word
from drld.gossip.wire.message import MAX_CONTENT, VERSION, VERSION_AND_KIND, Codec
from drld.model import HEARTBEAT, Quantity, Update

MAX_VALUE = 2.0**53
"""The largest value, bytes/s or flows: 72 Pbit/s is beyond any fleet."""
TAG_SIZE = 4
"""Bytes of the tag, unless the fleet has chosen another one of `TAG_SIZES`."""
TAG_SIZES = (4, 8, 16)
UPDATE_SIZE = 16
"""Bytes of an update."""
MAX_UPDATES = MAX_CONTENT // UPDATE_SIZE
"""The largest number of updates in a datagram."""

_FLOAT = struct.Struct(">f")
_QUANTITIES = {quantity.value: quantity for quantity in Quantity}

AnyUpdate = TypeVar("AnyUpdate", bound=Update)


class Head(NamedTuple):
    """The fields in the first two bytes of an accepted update."""

    key_id: int
    quantity: Quantity
    hears: bool
    flags: Mapping[str, int]
    """All fields of these bytes, those of the fabric among them."""


class UpdateCodec(Codec[Sequence[AnyUpdate]]):
    """The codec of one fabric's updates."""

    numbered = False

    def __init__(self, kind: int, flags: tuple[tuple[str, int], ...], last: Word) -> None:
        """`flags` are the fabric's fields in byte 1, (name, bits) of 4 bits in all; `last` is the
        word of 4 bytes after the value. A fabric whose flags have no `second` carries no second
        quantity of a limit.
        """
        super().__init__(kind)
        self.carries_second = any(name == "second" for name, _ in flags)
        self._flags = [name for name, _ in flags if name not in ("second", "reserved")]
        head = VERSION_AND_KIND, Word("B", (("key_id", 2), ("hears", 1), ("quantity", 1), *flags))
        self._head = Table(*head)
        self._written: dict[tuple[object, ...], bytes] = {}
        """Heads by key id, `hears`, quantity and the fabric's flags."""
        self._read: dict[tuple[int, int], Head] = {}
        """Accepted heads by their bytes."""
        self.table = Table(
            *head,
            Word("H", (("limit_id", 16),)),
            Word("I", (("sequence", 32),)),
            Word("f", (("value", 32),)),
            last,
        )

    @abstractmethod
    def write(self, update: AnyUpdate) -> tuple[tuple[int, ...], int | float]:
        """The fabric's own flags of an update, in their order, without `second` and reserved ones;
        and its last word."""

    @abstractmethod
    def read_untrusted(
        self,
        common: tuple[int, int, Quantity, bool, float],
        flags: Mapping[str, int],
        last: Any,
    ) -> AnyUpdate:
        """An update, from the `common` fields of all fabrics in their order, and the fabric's own.

        Raises:
            WireError: a field without a meaning is not zero.
        """

    @abstractmethod
    def problem(self, update: AnyUpdate) -> tuple[str, str] | None:
        """The fabric's first field that is out of its bounds, and the bounds; None: all are within.

        It applies to sent and received updates.
        """

    def check_length_untrusted(self, length: int) -> None:
        """See `Codec.check_length_untrusted`."""
        updates, rest = divmod(length, UPDATE_SIZE)
        if rest or not 0 < updates <= MAX_UPDATES:
            raise WireError("length", f"no 1 to {MAX_UPDATES} updates have {length} bytes")

    def encode(
        self,
        body: Sequence[AnyUpdate],
        key_id: int,
        number: int = 0,  # noqa: ARG002 -- each update has its own
    ) -> bytes:
        """See `Codec.encode`; reals are rounded to float32."""
        if not 0 < len(body) <= MAX_UPDATES:
            raise ValueError(f"{len(body)} updates: must be 1 to {MAX_UPDATES}")
        return b"".join([self._encode(update, key_id) for update in body])

    def _encode(self, update: AnyUpdate, key_id: int) -> bytes:
        problem = _out_of_bounds(update) or self.problem(update)
        if problem is not None:
            raise ValueError(f"{update}: {problem[0]} {problem[1]}")
        own, last = self.write(update)
        key = key_id, update.hears, update.quantity, own
        try:
            head = self._written.get(key)
            if head is None:
                head = self._written[key] = self._write_head(*key)
            rest = update.limit_id, update.sequence, update.value, last
            return self.table.struct.pack(*head, *rest)
        except (ValueError, struct.error) as error:
            raise ValueError(f"{update}: {error}") from None

    def _write_head(
        self, key_id: int, hears: bool, quantity: Quantity, own: Sequence[int]
    ) -> bytes:
        return self._head.pack(
            {
                "version": VERSION,
                "kind": self.kind,
                "key_id": key_id,
                "hears": int(hears),
                **self._quantity(quantity),
                "reserved": 0,
                **dict(zip(self._flags, own, strict=True)),
            }
        )

    def _quantity(self, quantity: Quantity) -> dict[str, int]:
        """The fields of a quantity."""
        second, unit = divmod(quantity.value, 2)
        if second and not self.carries_second:
            raise ValueError(f"quantity: this fabric does not carry {quantity.name}")
        return {"quantity": unit, "second": second}

    def decode_untrusted(self, content: bytes) -> list[AnyUpdate]:
        """See `Codec.decode_untrusted`. One bad update makes the whole datagram bad.

        Raises:
            WireError: with the reason `length`, `version`, `quantity`, `limit`, `value`, a reason
                of the fabric's, or `kind` or `key` if it differs from the first update's.
        """
        self.check_length_untrusted(len(content))
        key_id = content[1] >> 6
        return [self._decode(words, key_id) for words in self.table.struct.iter_unpack(content)]

    def _decode(self, words: tuple[Any, ...], key_id: int) -> AnyUpdate:
        first, second, limit_id, sequence, value, last = words
        head = self._read.get((first, second))
        if head is None:
            head = self._read[first, second] = self._read_head((first, second), key_id)
        if head.key_id != key_id:
            raise WireError("key", f"must be the first update's {key_id}")
        common = limit_id, sequence, head.quantity, head.hears, value
        update = self.read_untrusted(common, head.flags, last)
        problem = _out_of_bounds(update) or self.problem(update)
        if problem is not None:
            raise WireError(*problem)
        return update

    def _read_head(self, words: tuple[int, int], key_id: int) -> Head:
        fields = self._head.fields(words)
        if fields["version"] != VERSION:
            raise WireError("version", f"must be {VERSION} (got {fields['version']})")
        if fields["kind"] != self.kind:
            raise WireError("kind", f"must be the first update's {self.kind}")
        if fields["key_id"] != key_id:
            raise WireError("key", f"must be the first update's {key_id}")
        if fields.get("reserved"):
            raise WireError("reserved", "bits that must be zero are not")
        quantity = _QUANTITIES.get(fields.get("second", 0) << 1 | fields["quantity"])
        if quantity is None:
            raise WireError("quantity", "must be known")
        return Head(key_id, quantity, fields["hears"] == 1, fields)


def size(updates: int, tag_size: int = TAG_SIZE) -> int:
    """The length of a datagram with `updates` updates, bytes."""
    return updates * UPDATE_SIZE + tag_size


def to_float32(number: float) -> float:
    """The nearest number that the wire can carry.

    Raises:
        OverflowError: the number is beyond float32.
    """
    rounded: float = _FLOAT.unpack(_FLOAT.pack(number))[0]
    return rounded


def _out_of_bounds(update: Update) -> tuple[str, str] | None:
    """The first common field that is out of its bounds, and the bounds: see `problem`."""
    if update.limit_id == HEARTBEAT and update.value != 0:
        return "limit", "must be a limit's if the update has a value (got 0)"
    # NaN fails every comparison, so it is refused, too.
    if not abs(update.value) <= MAX_VALUE:
        return "value", f"must be within {MAX_VALUE:g} (got {update.value})"
    return None
