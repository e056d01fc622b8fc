"""A case of messages with real brokers, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from testbed.messages.case import Case
from testbed.messages.real.frames import Protocol


@dataclass(frozen=True, slots=True)
class RealCase(Case):
    """`seconds` and `warm_s` are those of the case in virtual time: a run takes `dilate` times as
    long."""

    protocol: Protocol = "nats"
    dilate: int = 10

    @property
    def depth(self) -> int:
        """Burst of the envelope, messages; the case must state it."""
        assert self.burst is not None
        return self.burst


def real_case_of(definition: Mapping[str, Any]) -> RealCase:
    """The case of a definition (`testbed.harness.virtual.CaseSeries.header`)."""
    values = {**definition, "brokers": tuple(definition["allocators"])}
    del values["plane"], values["allocators"]
    return RealCase(**values)
