"""The harm of one accepted forged update to a fleet: how much, and for how long.

`python -m tests.sim.forgery` prints the table of results/security.md. Ten limiters share a limit of
10 Mbit/s and want 20; after 10 s one of them takes one forged update for a peer's. The forger knows
all but the key: it is the worst link, the sequence number that keeps out the true updates longest,
and the values that are worst.

Columns: allocator, fabric, what the update says; the highest and lowest rate of the fleet over a
second, as part of the limit; what was forwarded beyond the limit, and what less, in seconds of it;
the last second that was off by a tenth.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

from drld.gossip.fabrics import FABRICS
from drld.gossip.fabrics.mesh_update import MeshUpdate
from drld.gossip.fabrics.pushsum import PushSum
from drld.gossip.fabrics.pushsum_update import PushsumUpdate
from drld.gossip.fabrics.tree_membership import TreeMembership
from drld.gossip.fabrics.tree_ranks import Role
from drld.gossip.fabrics.tree_update import TreeUpdate
from drld.gossip.wire.sequence import MAX_JUMP
from drld.gossip.wire.update_codec import MAX_VALUE
from drld.model import NS_PER_S, Quantity, Update
from testbed.sim.lives import Sealed
from testbed.sim.mailbox import Content

from ..factories import MBIT, limit_spec
from ..fleets.limiters import PACKET, PacketFleet

SIZE = 10
RATE = 10 * MBIT
FORGED_S = 10


class Harm(NamedTuple):
    """The effect, in parts of the bytes that the limit lets through in a second."""

    most: float
    """Highest and lowest rate of the fleet over a second, as part of the limit."""
    least: float
    excess_s: float
    """The bytes forwarded beyond the limit, and below it, in seconds of the limit."""
    lack_s: float
    until_s: float
    """The end of the last second that was more than a tenth off, after the forgery."""


def suffer(
    fabric: str,
    allocator: str,
    value: float,
    weight: float,
    *,
    seconds: int,
    seems: str = "child",
) -> Harm:
    """Let a fleet run, forge one update, and return the harm.

    In a tree the update goes to the root, as if from the child with the most below, or from a
    `stranger` that is not its child. Or it goes to that child, as if from its `parent`. In push-sum
    value and weight are added to the sums of the link, so that nothing shows the forgery at once.
    """
    made = PacketFleet(limit_spec(allocator, rate=RATE), SIZE, seed=1, fabric=fabric)
    for number, name in enumerate(made.names):
        made.constant(name, number, 2 * RATE / SIZE)
    made.run_until(FORGED_S)
    sender, victim, epoch, role = "l1", "l0", 0, Role.PARENT
    root = made.nodes[victim].engine.membership
    if isinstance(root, TreeMembership):
        memberships = {
            name: host.engine.membership
            for name, host in made.nodes.items()
            if isinstance(host.engine.membership, TreeMembership)
        }
        victim = next(name for name, it in memberships.items() if it.parent is None)
        root = memberships[victim]
        sender = max(root.children, key=lambda child: root.child_members(child, made.now_ns))
        if seems == "parent":
            sender, victim, role = victim, sender, Role.CHILD
        elif seems == "stranger":
            sender = next(name for name in made.names if name not in {victim, *root.children})
    elif isinstance(pushed := made.fabric(sender), PushSum):
        told = pushed._links[victim].told
        epoch, value, weight = pushed.epoch, told.value + value, told.weight + weight
    next_sequence = made.nodes[sender].engine.membership.numbering.of(victim, 1)._next
    quantity = Quantity.RATE if allocator in ("gtb", "grd") else Quantity.WEIGHT
    common = (1, next_sequence + MAX_JUMP - 2, quantity, True, value)
    forged: Update
    if fabric == "mesh":
        forged = MeshUpdate(*common, whole=False, rest=MAX_VALUE if weight > 1 else None)
    elif fabric == "tree":
        forged = TreeUpdate(*common, role=role, members=round(weight))
    else:
        forged = PushsumUpdate(*common, epoch=epoch, weight=weight)
    content = Content(FABRICS[fabric].kind, [forged])
    made.network.send(sender, victim, Sealed(0, 0, content), made.now_ns)
    made.run_until(FORGED_S + seconds)
    return _harm(made, seconds)


def _harm(made: PacketFleet, seconds: int) -> Harm:
    counts = [0] * seconds
    for host in made.nodes.values():
        for when_ns in host.times:
            second = when_ns // NS_PER_S - FORGED_S
            if second >= 0:
                counts[second] += 1
    parts = [count * PACKET / RATE for count in counts]
    off = [index + 1 for index, part in enumerate(parts) if abs(part - 1) > 0.1]
    return Harm(
        most=max(parts),
        least=min(parts),
        excess_s=sum(max(0.0, part - 1) for part in parts),
        lack_s=sum(max(0.0, 1 - part) for part in parts),
        until_s=max(off, default=0),
    )


ALLOCATORS = ("fps", "grd")
CASES = (
    ("mesh", "wants everything", MAX_VALUE, 1.0, "child"),
    ("mesh", "wants nothing", 0.0, 1.0, "child"),
    ("tree", "all below want everything", MAX_VALUE, float(SIZE), "child"),
    ("tree", "all below want nothing", 0.0, float(SIZE), "child"),
    ("tree", "the rest wants everything", MAX_VALUE, float(SIZE), "parent"),
    ("tree", "the rest wants nothing", 0.0, float(SIZE), "parent"),
    ("tree", "one who is no child wants everything", MAX_VALUE, float(SIZE), "stranger"),
    ("pushsum", "much value", 1e8, 0.25, "child"),
    ("pushsum", "much weight", 0.0, 100.0, "child"),
    ("pushsum", "value below zero", -1e8, 0.25, "child"),
)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    fabrics = list(dict.fromkeys(case[0] for case in CASES))
    parser.add_argument("--fabric", action="append", choices=fabrics, help="no others")
    parser.add_argument("--allocator", action="append", choices=ALLOCATORS, help="no others")
    args = parser.parse_args()
    for allocator in args.allocator or ALLOCATORS:
        for fabric, what, value, weight, seems in CASES:
            if args.fabric and fabric not in args.fabric:
                continue
            harm = suffer(fabric, allocator, value, weight, seconds=12, seems=seems)
            print(
                f"| {allocator} | {fabric} | {what} | {harm.most:.2f} | {harm.least:.2f} | "
                f"{harm.excess_s:.1f} | {harm.lack_s:.1f} | {harm.until_s:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
