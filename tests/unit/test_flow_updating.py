"""Flow updating, which drld does without: that it is built as its authors have it."""

from __future__ import annotations

from random import Random

import pytest
from click.testing import CliRunner

from testbed.fabrics import flow_updating
from testbed.fabrics.flow_updating import Fleet, Limiter, Manner, Said, measure, overlay


@pytest.mark.parametrize(("size", "degree"), [(10, 4), (10, 6), (50, 4)])
def test_all_have_the_same_number_of_neighbours_and_are_theirs(size: int, degree: int) -> None:
    names = [f"l{number}" for number in range(size)]
    neighbours = overlay(names, degree, Random(1))
    assert {len(others) for others in neighbours.values()} == {degree}
    assert all(name in neighbours[other] for name in names for other in neighbours[name])


def test_a_round_averages_what_was_heard() -> None:
    limiter = Limiter(["a", "b"], 2, Random(1))
    limiter.value = 12.0
    limiter.hear("a", Said(flow=-2.0, average=4.0))
    # e = 12 - 2, and the mean of 10 and 4 is 7: 3 more flow to `a`. Nobody has heard of `b`.
    assert dict(limiter.publish()) == {"a": Said(5.0, 7.0), "b": Said(0.0, 7.0)}
    assert limiter.estimate == 7.0


def test_whose_turn_it_is() -> None:
    limiter = Limiter(["a", "b", "c", "d"], 3, Random(1))
    told = [{peer for peer, _ in limiter.publish()} for _ in range(4)]
    assert {len(targets) for targets in told} == {3}
    assert told[0] | told[1] == {"a", "b", "c", "d"}


@pytest.mark.parametrize("loss", [0.0, 0.4])
def test_loss_does_not_bias_it(loss: float) -> None:
    made = Fleet(10, Manner(4, 3), loss, 1)
    assert max(map(abs, made.run(1)[-1])) > 0.1
    assert max(map(abs, made.run(400)[-1])) < 1e-6


def test_a_change_spreads_by_diffusion() -> None:
    found = measure(10, Manner(4, 4), 0.0, 1)
    assert 0.3 < found.known < 3
    assert found.highest > 0.4
    assert 0.01 < found.restless < 0.1


def test_the_command_prints_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_updating, "MANNERS", (Manner(4, 4),))
    monkeypatch.setattr(flow_updating, "FLEETS", {10: 1, 100: 1})
    shown = CliRunner().invoke(flow_updating.main, ["--most", "10"])
    assert shown.exit_code == 0, shown.output
    lines = shown.output.splitlines()
    assert len(lines) == 2 + len(flow_updating.LOSSES)
    assert {line.count("|") for line in lines} == {8}
    assert lines[2].startswith("| 10 | 0 % | 4 | 4 | ")
