"""The classification tables of the BPF program."""

import random
from ipaddress import ip_network
from typing import Any

import pytest

from drld.capture import kernel_classifier as classifier
from drld.capture import kernel_layout as layout
from drld.capture.spec import Match, match_of
from drld.errors import DatapathError
from drld.police.direction import Direction
from drld.spec import LimitSpec

from ..factories import limit_spec


def limit(number: int, **conditions: Any) -> LimitSpec:
    match = Match("eth0", Direction.OUT, **conditions)
    return limit_spec(id=number, name=f"l{number}", match=match)


def tables(limits: list[LimitSpec]) -> classifier.Tables:
    slots = {each.id: slot for slot, each in enumerate(limits)}
    return classifier.tables(limits, slots, cpus=2, link_bytes=14, seed=1)


def refused(limits: list[LimitSpec], match: str) -> set[int]:
    """The ids of the limits that cannot be enforced; all others can."""
    with pytest.raises(DatapathError, match=match) as caught:
        tables(limits)
    beyond = set(caught.value.limits)
    assert beyond
    assert {*caught.value.limits.values()} == {str(caught.value)}
    tables([each for each in limits if each.id not in beyond])
    return beyond


def longest(made: classifier.Tables) -> int:
    found: int = layout.HOOK.unpack_from(made.hook)[2]
    return found


def test_nested_prefixes_are_counted_together_and_disjoint_ones_are_not() -> None:
    customers = [limit(n, destination=ip_network(f"10.{n}.0.0/16")) for n in range(1, 100)]
    assert longest(tables(customers)) == 1
    sites = [limit(100 + n, destination=ip_network(f"10.1.{n}.0/24")) for n in range(100)]
    assert longest(tables([*customers, *sites])) == 2
    assert longest(tables([*customers, *sites, limit(1000)])) == 3


def test_prefixes_of_source_and_destination_may_meet() -> None:
    sources = [limit(n, source=ip_network(f"10.{n}.0.0/16")) for n in range(1, 50)]
    targets = [limit(100 + n, destination=ip_network(f"10.{n}.0.0/16")) for n in range(1, 50)]
    assert longest(tables([*sources, *targets])) == 2


def test_too_many_limits_for_one_packet_are_refused_by_name() -> None:
    nested = [limit(n, destination=ip_network(f"10.0.0.0/{8 + n}")) for n in range(1, 10)]
    assert refused(nested, r"8 limits that one packet.* not 9: l9, l1, l2") == {9}
    assert longest(tables(nested[1:])) == 8
    # Those that have ports of their own are not too many.
    ports = [limit(n, protocol=6, destination_ports=((n, n),)) for n in range(10, 20)]
    assert refused([*nested[:7], *ports, nested[7]], "not 9: .* more") == {8}


def test_too_many_combinations_are_refused() -> None:
    different = [limit(n, mark=(0, 1 << n)) for n in range(17)]
    assert refused(different, "one packet may fall under") == set(range(8, 17))
    apart = [limit(n, destination=ip_network(f"{10 + n}.0.0.0/{8 + n}")) for n in range(17)]
    assert refused(apart, r"16 combinations .* not 17") == {16}
    tables(apart[1:])


def test_many_limits_that_differ_in_ports_alone_are_refused() -> None:
    web = [
        limit(n, protocol=6, destination_ports=((n, n),), destination=ip_network("10.0.0.0/8"))
        for n in range(1, 34)
    ]
    assert refused(web, r"32 limits that differ only in .* not 33") == {33}
    assert longest(tables(web[1:])) == 1
    any_port = limit(50, destination=ip_network("10.0.0.0/8"))
    assert longest(tables([any_port, *web[2:]])) == 2


def test_more_comparisons_than_the_verifier_follows_are_refused() -> None:
    web = [
        limit(
            20 * n + port,
            protocol=6,
            destination_ports=((port, port),),
            destination=ip_network(f"{10 + n}.0.0.0/{8 + n}"),
        )
        for n in range(8)
        for port in range(1, 18)
    ]
    too_many = refused(web, "with at most 128 limits, not 136: .* ports; l17, l37, ")
    assert too_many == {each.id for each in web if each.id % 20 == 17}


def test_too_many_port_ranges_are_refused_by_name() -> None:
    ranges = tuple((n, n) for n in range(1, 18))
    wide = limit(1, protocol=6, destination_ports=ranges)
    assert refused([wide, limit(2)], "16 port ranges: limit l1 has more") == {1}


def test_a_packet_never_falls_under_more_than_the_bound() -> None:
    rng = random.Random(3)
    networks = ["10.0.0.0/8", "10.0.0.0/16", "10.1.0.0/16", "10.0.0.0/24", "10.0.0.1/32"]
    for _ in range(200):
        limits = [
            limit(
                n,
                source=rng.choice([None, *map(ip_network, networks)]),
                destination=rng.choice([None, *map(ip_network, networks)]),
            )
            for n in range(1, 6)
        ]
        bound = longest(tables(limits))
        for source in ("10.0.0.1", "10.0.0.2", "10.1.0.1", "10.2.0.1"):
            for destination in ("10.0.0.1", "10.0.0.2", "10.1.0.1", "10.2.0.1"):
                met = [
                    each
                    for each in limits
                    if inside(source, match_of(each).source)
                    and inside(destination, match_of(each).destination)
                ]
                assert len(met) <= bound


def inside(address: str, network: Any) -> bool:
    return network is None or ip_network(address).subnet_of(network)


@pytest.mark.parametrize(
    ("limits", "slots"),
    [
        ([limit(1)], (1, 1, 1)),
        ([limit(1, source=ip_network("0.0.0.0/0"))], (1, 0, 0)),
        ([limit(1, source=ip_network("10.0.0.0/8"))], (0, 0, 0)),
        ([limit(1, source=ip_network("10.0.0.0/8")), limit(2)], (0, 2, 2)),
        ([limit(1, protocol=6)], (0, 0, 0)),
        ([limit(1, protocol=6, destination_ports=((80, 80),))], (0, 0, 0)),
        ([limit(1, mark=(1, 1))], (0, 0, 0)),
        ([limit(1), limit(2)], (0, 0, 0)),
    ],
)
def test_the_only_limit_of_a_family_needs_no_lookup(
    limits: list[LimitSpec], slots: tuple[int, int, int]
) -> None:
    """One more than the slot, for IPv4, IPv6 and unknown addresses."""
    hook = tables(limits).hook
    found = tuple(
        layout.FAMILY.unpack_from(hook, layout.HOOK.size + number * layout.FAMILY_BYTES)[3]
        for number in range(len(layout.FAMILIES))
    )
    assert found == slots
