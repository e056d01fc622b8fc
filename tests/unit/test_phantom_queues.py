"""BC-PQP, the reference policer with a phantom queue for each flow."""

from random import Random

from drld.model import NS_PER_S, Enforcement
from testbed.sim.phantom_queues import WINDOW_NS, PhantomQueues

from ..factories import flow, policy

RNG = Random(1)
RATE = 1_250_000
PACKET = 1500
START_NS = 10**12


def passed(senders: dict[int, float], seconds: float) -> dict[int, list[float]]:
    """The bytes of each flow that passed in each window; senders: each flow's rate, bytes/s."""
    queues = PhantomQueues(policy(rate=RATE), Enforcement(), START_NS)
    packets = sorted(
        (START_NS + round(number * PACKET / rate * NS_PER_S), sender)
        for sender, rate in senders.items()
        for number in range(round(rate * seconds / PACKET))
    )
    windows = round(seconds * NS_PER_S / WINDOW_NS)
    counts = {sender: [0.0] * windows for sender in senders}
    for when_ns, sender in packets:
        if queues.police(flow(sender), PACKET, when_ns, RNG):
            counts[sender][(when_ns - START_NS) // WINDOW_NS] += PACKET
    return counts


def test_flows_that_want_more_than_their_share_have_equal_rates() -> None:
    later = {sender: sum(counts[10:]) for sender, counts in passed({1: 5e6, 2: 1e6}, 5).items()}
    share = RATE / 2 * 4
    assert all(abs(total - share) < 0.02 * share for total in later.values())


def test_a_rate_that_one_flow_leaves_is_used_by_the_other() -> None:
    small, large = passed({1: 1e5, 2: 5e6}, 5).values()
    assert sum(small[10:]) >= 1e5 * 4 - PACKET
    assert abs(sum(large[10:]) - (RATE - 1e5) * 4) < 0.02 * RATE * 4


def test_burst_control_ends_a_burst_after_a_window() -> None:
    (counts,) = passed({1: 5e6}, 1).values()
    window = RATE * WINDOW_NS / NS_PER_S
    assert counts[0] > 3 * window
    assert max(counts[1:]) <= window + PACKET
