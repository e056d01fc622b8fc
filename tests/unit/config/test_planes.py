"""A plane registers a table of the configuration from its own folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from drld import config
from drld.config.planes import PLANES
from drld.config.problems import Problems
from drld.config.schema import LimitTable, Table
from drld.config.section import Section
from drld.errors import ConfigError
from drld.spec import LimiterSpec

from .good import GOOD


class CallsTable(Table):
    """`[calls]`: how calls are answered."""

    port: int = 8080
    """Port that is listened on."""
    most: int = 100
    """Limits that there may be."""


@dataclass(frozen=True)
class CallsSpec:
    port: int
    most: int


@dataclass(frozen=True)
class SpecWithCalls(LimiterSpec):
    calls: CallsSpec = field(default_factory=lambda: CallsSpec(0, 0))


def check(table: CallsTable, limits: Sequence[LimitTable | None], problems: Problems) -> None:
    if len(limits) > table.most:
        problems.refuse(["calls", "most"], table.most, f"at least {len(limits)}")


CALLS = Section("calls", CallsTable, CallsSpec, check)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "PLANES", (*PLANES, CALLS))
    monkeypatch.setattr(config, "LimiterSpec", SpecWithCalls)


@pytest.mark.parametrize(
    ("text", "spec"), [("", CallsSpec(8080, 100)), ("[calls]\nport = 81\n", CallsSpec(81, 100))]
)
def test_its_table_is_read(text: str, spec: CallsSpec) -> None:
    read = config.parse(GOOD + text, "f")
    assert isinstance(read, SpecWithCalls)
    assert read.calls == spec
    assert read.packets == config.parse(GOOD, "f").packets


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[calls]\nxyz = 1\n", "f: calls.xyz: unknown key; known here: port, most"),
        ("[calls]\nport = '81'\n", "f: calls.port: must be an integer (got '81')"),
        ("[calls]\nmost = 0\n", "f: calls.most: must be at least 1 (got 0)"),
        ("[cals]\n", 'f: cals: unknown key; did you mean "calls"?'),
    ],
)
def test_its_mistakes_are_listed(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        config.parse(GOOD + text, "f")
    assert refused.value.problems == [problem]
