"""The congestion controls of the simulator's senders, by their names in experiments."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from testbed.sim.bbr import BbrModel
from testbed.sim.congestion import Congestion
from testbed.sim.cubic import Cubic

CONTROLS: Mapping[str, type[Congestion]] = MappingProxyType(
    {"reno": Congestion, "cubic": Cubic, "bbr": BbrModel}
)
