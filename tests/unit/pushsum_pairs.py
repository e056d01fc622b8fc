"""One or two limiters with the push-sum fabric."""

from random import Random

from drld.gossip.fabrics.pushsum import PushSum, PushsumMembership
from drld.gossip.fabrics.pushsum_update import PushsumUpdate
from drld.model import Quantity

from .. import wire

TICK = 50_000_000


def push_sum(peers: str = "b", name: str = "a", branching: int = 3) -> PushSum:
    membership = PushsumMembership(name, list(peers), PushSum.fanout(branching), TICK)
    return PushSum(membership=membership, limit_id=7, quantity=Quantity.RATE)


def publish(
    fabric: PushSum, value: float, now_ns: int, rng: Random
) -> list[tuple[str, PushsumUpdate]]:
    return fabric.publish(value, fabric.membership.targets(rng), now_ns)


def update(
    sequence: int, value: float, weight: float, epoch: int = 0, *, hears: bool | None = None
) -> PushsumUpdate:
    return wire.pushsum(7, sequence, value, weight, epoch=epoch, hears=hears)


def exchange(a: PushSum, b: PushSum, intervals: range, demand: dict[str, float]) -> None:
    """Both tick at once; updates, or heartbeats, arrive before the next tick."""
    rng = Random(1)
    for interval in intervals:
        now = interval * TICK
        for fabric in (a, b):
            fabric.view(now)
        sent = [
            (fabric, other, [u for _, u in publish(other, demand[other.membership.name], now, rng)])
            for fabric, other in ((b, a), (a, b))
        ]
        for fabric, other, updates in sent:
            fabric.membership.hear(other.membership.name, hears_us=True, now_ns=now + TICK // 2)
            for u in updates:
                fabric.receive(other.membership.name, u, now + TICK // 2)


def acquainted() -> tuple[PushSum, PushSum]:
    """Two limiters that know what each other wants, 100 and 30, after ten intervals."""
    a, b = push_sum(), push_sum("a", "b")
    exchange(a, b, range(10), {"a": 100.0, "b": 30.0})
    return a, b
