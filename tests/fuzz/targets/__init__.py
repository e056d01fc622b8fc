"""The fuzz targets: one definition each of what must hold for hostile input.

The Hypothesis tests of tests/fuzz, the regression inputs of tests/fuzz/corpus and the
coverage-guided fuzzer (scripts/fuzz) all judge by these.
"""

from __future__ import annotations

from tests.fuzz.targets import api, config, control_wire, packet, wire
from tests.fuzz.targets.base import Target

TARGETS: dict[str, Target] = {
    "wire": wire.TARGET,
    "control-wire": control_wire.TARGET,
    "packet": packet.TARGET,
    "config": config.TARGET,
    "api": api.TARGET,
}
