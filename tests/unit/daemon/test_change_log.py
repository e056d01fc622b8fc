"""The news of a change of limits for the peers, and the work to find it."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from drld import config
from drld.config import Files
from drld.config.changes import Change, Configuration
from drld.daemon.change_log import differs_for_peers
from drld.gossip.health.config_digest import GOSSIP_ID
from drld.policy import Policy
from drld.shared_settings import shared_settings
from drld.spec import GossipSpec

LIMITS = 50
FILE = """
[limiter]
name = "lim1"
listen = "10.0.0.1:7946"
[[peer]]
name = "lim2"
address = "10.0.0.2:7946"
""" + "".join(
    f'[[limit]]\nid = {number}\nname = "c{number}"\nrate = "10mbit"\nmatch = {{ out = "eth1" }}\n'
    for number in range(1, LIMITS + 1)
)
BEFORE = Configuration.of(Files("f", config.parsed(FILE, "f")))
NEW = {"id": 99, "name": "new", "rate": "1mbit", "match": {"out": "eth1"}}


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        (Change("set", [{"rate": "20mbit"}], "c7"), True),
        (Change("set", [{"mode": "pause"}], "c7"), False),
        (Change("set", [{"match": {"out": "eth2"}}], "c7"), False),
        (Change("add", [NEW]), True),
        (Change("remove", (), "c7"), True),
    ],
)
def test_peers_need_a_change_of_what_a_fleet_shares(
    change: Change, differs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon's loop does this: the limits that stay must cost nothing."""
    asked: list[int] = []

    def noted(policies: Iterable[Policy], gossip: GossipSpec) -> dict[int, bytes]:
        found = shared_settings(policies, gossip)
        asked.extend(found.keys() - {GOSSIP_ID})
        return found

    monkeypatch.setattr("drld.daemon.change_log.shared_settings", noted)
    assert differs_for_peers(BEFORE, BEFORE.changed(change)) is differs
    assert {*asked} <= {7, 99}
