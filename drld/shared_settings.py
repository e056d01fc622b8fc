"""The settings that all limiters of a fleet must share, as canonical bytes for their digests.

Rule: what is compared is what the operators wrote. A key that a configuration file leaves out is
left out here too, because the value in force is then the choice of the drld version. So limiters
with the same file agree, even if their versions differ in a default, or if one lacks a parameter
that the file does not set. `burst = "auto"` is the same as no `burst`. The price: a file that
writes a default differs from one that leaves it out, although both behave alike in this version.

No digest could do better. Say that the default is 0.1 in one version and 0.2 in the next. Both
versions must agree if both files leave the key out, and if both write 0.1. If "left out" also
agreed with 0.1 in the older version, then it would agree with 0.1 in the newer one, which is wrong.

A specification that was made in code (`written` is None) asks for all its values.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from drld.gossip.health.config_digest import GOSSIP_ID, canonical
from drld.policy import Policy
from drld.spec import GossipSpec
from drld.units import BYTES

_VERSION = 1
"""Version of these forms. Limiters with different versions differ in all their limits."""


def shared_settings(policies: Iterable[Policy], gossip: GossipSpec) -> dict[int, bytes]:
    """The settings of each limit by its id, and those of the fabric by `GOSSIP_ID`."""
    fabric = {
        "fabric": gossip.fabric,
        "branching": gossip.branching,
        "interval": gossip.interval_ns,
    }
    forms = {GOSSIP_ID: _form(fabric, gossip.written)}
    return forms | {policy.id: _form(_settings(policy), policy.written) for policy in policies}


def _settings(policy: Policy) -> dict[str, object]:
    """The shared settings of a limit, by the names of the keys in a file."""
    parameters: Any = policy.parameters
    return {
        # Without its name, bytes have the form that versions with no other unit give them.
        "rate": policy.rate if policy.unit == BYTES else {policy.unit.name: policy.rate},
        "burst": None if policy.burst_is_automatic else policy.burst,
        "allocator": policy.allocator,
        "interval": policy.interval_ns,
        "excess": policy.excess.value if policy.excess else None,
        "shares": policy.shares,
        "weights": {name: weight for name, weight in policy.weights.items() if weight != 1},
        "flow": str(policy.flow) if policy.flow else None,
        **{f"allocator.{key}": value for key, value in dataclasses.asdict(parameters).items()},
        **policy.shared,
    }


def _form(settings: dict[str, object], written: frozenset[str] | None) -> bytes:
    asked = {key: it for key, it in settings.items() if written is None or key in written}
    return canonical(_VERSION, asked)
