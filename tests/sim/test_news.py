"""The age of news (docs/conservative-rule.md, "A bound on bytes")."""

import pytest

from drld.gossip.fabrics.tree_ranks import candidates
from testbed.fabrics.fleet import BRANCHING, INTERVAL_NS, Fleet
from testbed.sim.network import Conditions

from .news import assumed, oldest, oldest_of


def hops(names: list[str]) -> int:
    """The longest way in the tree that limiters of these names make, while all live."""
    lines: dict[str, list[str]] = {}

    def line(name: str) -> list[str]:
        if name not in lines:
            parents = candidates(name, names, BRANCHING)
            lines[name] = [name, *(line(parents[0]) if parents else [])]
        return lines[name]

    return max(len(set(line(one)) ^ set(line(other))) for one in names for other in names)


def fleet(fabric: str, size: int, seed: int, path: float) -> Fleet:
    return Fleet(fabric, size, seed, Conditions(delay_ns=round(path * INTERVAL_NS)))


@pytest.mark.parametrize("path", [0.0, 0.5, 1.0])
def test_in_a_mesh_news_is_as_old_as_a_path_is_long(path: float) -> None:
    """The value of a round replaces the one before, and arrives a path's delay later."""
    for seed in range(3):
        made = fleet("mesh", 6, seed, path)
        assert path - 0.5 <= oldest(made, made.names) <= path <= assumed(made)


@pytest.mark.parametrize("size", [2, 5, 12])
@pytest.mark.parametrize("path", [0.0, 0.5, 1.0])
def test_in_a_tree_every_hop_takes_a_path_and_an_interval_at_most(path: float, size: int) -> None:
    """A hop takes a round less for the last one, and half a round on average if phases vary."""
    for seed in range(3):
        made = fleet("tree", size, seed, path)
        most = hops(made.names) * (path + 1) - 1
        assert path * hops(made.names) - 1 <= oldest(made, made.names[:4]) <= most


@pytest.mark.parametrize("size", [2, 5, 12, 30])
def test_news_in_a_tree_is_no_older_than_stated_on_short_paths(size: int) -> None:
    """Up to a fifth of an interval."""
    for seed in range(3):
        made = fleet("tree", size, seed, 0.2)
        assert oldest(made, made.names[:4]) <= assumed(made)


@pytest.mark.parametrize("path", [0.0, 0.2, 0.9])
def test_waiting_times_add_up_to_the_age_that_a_fleet_shows(path: float) -> None:
    for seed in range(3):
        made = fleet("tree", 9, seed, path)
        phases = {name: at_ns / INTERVAL_NS for name, at_ns in made.phase_ns.items()}
        assert oldest_of(phases, path) == pytest.approx(oldest(made, made.names), abs=1e-6)


def test_the_longest_path_in_a_tree_has_twice_the_bits_of_its_size() -> None:
    for size in (2, 3, 5, 9, 16, 40, 100):
        names = [f"l{number}" for number in range(size)]
        assert hops(names) <= 2 * size.bit_length()
