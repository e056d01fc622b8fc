"""The congestion controls of the simulator's senders, by their names in experiments."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from testbed.tcp.bbr import BbrModel
from testbed.tcp.congestion import Congestion
from testbed.tcp.cubic import Cubic

CONTROLS: Mapping[str, type[Congestion]] = MappingProxyType(
    {"reno": Congestion, "cubic": Cubic, "bbr": BbrModel}
)
