"""The update of a tree, and its codec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drld.gossip.fabrics.tree_ranks import Role
from drld.gossip.wire.layout import Word
from drld.gossip.wire.message import register
from drld.gossip.wire.update_codec import UpdateCodec
from drld.model import Quantity, Update
from drld.record import record

MAX_MEMBERS = 1 << 20
"""The largest number of limiters in an update: beyond any fleet."""


@record(frozen=True, slots=True)
class TreeUpdate(Update):
    """An update in a tree. Its value is a sum of limiters' values, at least 0."""

    role: Role
    """The role of the receiver towards the sender, as the sender sees it."""
    members: int
    """The number of limiters in the sum; 0 if the sender does not hear the receiver."""


class _TreeCodec(UpdateCodec[TreeUpdate]):
    def write(self, update: TreeUpdate) -> tuple[tuple[int, ...], int]:
        return (int(update.role),), update.members

    def read_untrusted(
        self, common: tuple[int, int, Quantity, bool, float], flags: Mapping[str, int], last: Any
    ) -> TreeUpdate:
        return TreeUpdate(*common, role=Role(flags["role"]), members=last)

    def problem(self, update: TreeUpdate) -> tuple[str, str] | None:
        if update.value < 0:
            return "value", f"must not be negative (got {update.value})"
        if not update.hears <= update.members <= update.hears * MAX_MEMBERS:
            expected = f"from 1 to {MAX_MEMBERS}" if update.hears else "0 without `hears`"
            return "members", f"must be {expected} (got {update.members})"
        return None


TREE = _TreeCodec(6, (("role", 2), ("second", 1), ("reserved", 1)), Word("I", (("members", 32),)))
register(TREE)
