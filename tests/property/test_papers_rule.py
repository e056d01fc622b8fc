"""How far the paper's own conservative rule may exceed the limit (docs/conservative-rule.md).

Section 5.6 alone, where each limiter counts those that it is connected to: the bound of the sum of
the local limits holds, is reached, and is what drld's rule is there to avoid.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction

from hypothesis import example, given
from hypothesis import strategies as st

Graph = tuple[frozenset[int], ...]
"""The limiters that each limiter is connected to, itself included."""


def graph_of(size: int, links: Sequence[tuple[int, int]]) -> Graph:
    return tuple(
        frozenset({me, *(b for a, b in links if a == me), *(a for a, b in links if b == me)})
        for me in range(size)
    )


def pairs(size: int) -> list[tuple[int, int]]:
    return list(itertools.combinations(range(size), 2))


def local_limits(graph: Graph, shares: Sequence[Fraction], wanted: Sequence[int]) -> Fraction:
    """Sum of what the paper's rule gives, over the limit."""
    return sum(
        (
            sum((shares[j] for j in around), Fraction())
            * Fraction(wanted[me], sum(wanted[j] for j in around))
            for me, around in enumerate(graph)
            if wanted[me]
        ),
        Fraction(),
    )


def worst(graph: Graph, shares: Sequence[Fraction]) -> tuple[Fraction, tuple[int, ...]]:
    """The largest sum of shares in force of limiters of which no two are connected; and those."""
    members = range(len(graph))
    return max(
        (sum((shares[j] for me in some for j in graph[me]), Fraction()), some)
        for count in range(1, len(graph) + 1)
        for some in itertools.combinations(members, count)
        if all(b not in graph[a] for a, b in itertools.combinations(some, 2))
    )


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Graph, list[Fraction], list[int]]:
    size = draw(st.integers(1, 7))
    links = [pair for pair in pairs(size) if draw(st.booleans())]
    parts = draw(st.lists(st.integers(0, 9), min_size=size, max_size=size).filter(any))
    wanted = draw(st.lists(st.integers(0, 100), min_size=size, max_size=size))
    return graph_of(size, links), [Fraction(part, sum(parts)) for part in parts], wanted


@given(graphs())
@example((graph_of(3, [(0, 1), (1, 2)]), [Fraction(1, 3)] * 3, [1, 0, 1]))
def test_the_bound_holds_and_is_reached(case: tuple[Graph, list[Fraction], list[int]]) -> None:
    graph, shares, wanted = case
    bound, apart = worst(graph, shares)
    assert local_limits(graph, shares, wanted) <= bound
    only_these = [int(me in apart) for me in range(len(graph))]
    assert local_limits(graph, shares, only_these) == bound


def test_the_excess_of_equal_shares_depends_on_the_cliques() -> None:
    """4/3 for a chain; the limit itself if, and only if, all parts are cliques; never more than
    (N + 1)^2 / 4 N, which odd fleets reach."""
    chain = graph_of(3, [(0, 1), (1, 2)])
    assert worst(chain, [Fraction(1, 3)] * 3)[0] == Fraction(4, 3)
    for size in range(1, 6):
        shares = [Fraction(1, size)] * size
        most = Fraction()
        for count in range(len(pairs(size)) + 1):
            for links in itertools.combinations(pairs(size), count):
                graph = graph_of(size, links)
                bound, _ = worst(graph, shares)
                cliques = all(graph[other] == around for around in graph for other in around)
                assert bound >= 1
                assert (bound == 1) == cliques
                most = max(most, bound)
        highest = Fraction((size + 1) ** 2, 4 * size)
        assert most == highest if size % 2 else most < highest
