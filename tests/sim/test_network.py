"""The simulated network does what its conditions say."""

from testbed.sim.network import MS, Conditions, Network


def arrivals(network: Network[bytes], count: int = 2000, spacing_ns: int = MS) -> list[int]:
    """Send numbered datagrams from a to b; their numbers in the order of arrival."""
    for number in range(count):
        network.send("a", "b", number.to_bytes(4, "big"), number * spacing_ns)
    received = list(network.receive("b", 10**15))
    assert {source for source, _ in received} <= {"a"}
    return [int.from_bytes(datagram, "big") for _, datagram in received]


def test_by_default_all_datagrams_arrive_in_order() -> None:
    assert arrivals(Network(1, Conditions())) == list(range(2000))


def test_paths_have_their_delay_and_jitter() -> None:
    network: Network[bytes] = Network(1, Conditions(delay_ns=20 * MS, jitter_ns=10 * MS))
    network.send("a", "b", b"x", 0)
    assert list(network.receive("b", 20 * MS - 1)) == []
    assert list(network.receive("b", 30 * MS)) == [("a", b"x")]
    assert list(network.receive("b", 30 * MS)) == []
    order = arrivals(network)
    assert sorted(order) == list(range(2000))
    assert order != sorted(order)
    assert max(place - number for place, number in enumerate(order)) <= 10


def test_paths_lose_and_duplicate_the_given_parts() -> None:
    assert 350 < 2000 - len(arrivals(Network(1, Conditions(loss=0.2)))) < 450
    repeated = arrivals(Network(1, Conditions(duplicate=0.2)))
    assert 350 < len(repeated) - 2000 < 450
    assert set(repeated) == set(range(2000))


def test_the_seed_decides_about_losses() -> None:
    conditions = Conditions(jitter_ns=10 * MS, loss=0.2, duplicate=0.1)
    assert arrivals(Network(1, conditions)) == arrivals(Network(1, conditions))
    assert arrivals(Network(1, conditions)) != arrivals(Network(2, conditions))


def test_cut_paths_carry_nothing() -> None:
    network: Network[bytes] = Network(1, Conditions())
    network.partition("a", "b")
    assert arrivals(network, count=3) == []
    network.send("c", "b", b"x", 0)
    assert list(network.receive("b", 10**15)) == [("c", b"x")]
    network.heal()
    assert arrivals(network, count=3) == [0, 1, 2]
    assert network.sent == 7
