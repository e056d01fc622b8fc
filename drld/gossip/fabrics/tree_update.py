"""What a limiter tells a peer of a limit in a tree, and how it is written."""

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
"""Limiters: beyond any fleet."""


@record(frozen=True, slots=True)
class TreeUpdate(Update):
    """An update in a tree; its value is a sum of what limiters want, not negative."""

    role: Role
    """What the receiver is to the sender."""
    members: int
    """How many limiters the sum is of; 0 if the sender does not hear the receiver."""


class _TreeCodec(UpdateCodec[TreeUpdate]):
    def write(self, update: TreeUpdate) -> Mapping[str, int | float]:
        return {"role": int(update.role), "members": update.members}

    def read_untrusted(
        self, common: tuple[int, int, Quantity, bool, float], fields: Mapping[str, Any]
    ) -> TreeUpdate:
        return TreeUpdate(*common, role=Role(fields["role"]), members=fields["members"])

    def problem(self, update: TreeUpdate) -> tuple[str, str] | None:
        if update.value < 0:
            return "value", f"{update.value} is negative"
        if not update.hears <= update.members <= update.hears * MAX_MEMBERS:
            return "members", f"{update.members} is not from 1 to {MAX_MEMBERS}, or 0 if unheard"
        return None


TREE = _TreeCodec(6, (("role", 2), ("second", 1), ("reserved", 1)), Word("I", (("members", 32),)))
register(TREE)
