"""Rolling upgrades and rollbacks: one limiter after another gets another version of drld.

The steps are those of docs/operations.md: the daemon is killed, the new one starts, and the next
limiter waits until all are connected. First the fleet goes back to the other version, and then to
this one, so that it is as before in the end.
"""

from __future__ import annotations

import copy
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import trio

from testbed import child, netns
from testbed.chaos.configs import TOLD_S, told
from testbed.chaos.deaths import RECOVER_S, RESTARTED_LINES, ready, took_to_start
from testbed.chaos.fault import NFQUEUE, Episode, Fault, took_s
from testbed.chaos.members import WATCHED, Member
from testbed.chaos.promises import CLOSED, KILLED, RESTARTED, RESTARTED_CLOSED, promised
from testbed.chaos.scene import LIMITERS, Scene
from testbed.chaos.versions import MARK, another_default, earlier
from testbed.harness.finding import Check
from testbed.provenance import ROOT

_CONNECTED_S = 5.0
"""Time until all are connected, s: peers know of the new daemon within 3 s, and a tree counts it
within a detection time, 2 s."""
_DIFFERS = "has a different configuration: limits"
_OF_RESTARTS = frozenset({"session", "tag"})
"""Reasons to refuse datagrams that each restart has: they are of a session that has ended."""
_RELOAD_LINES = 3


def _upgrade(other_version: Callable[[Path, Scene], Path]) -> Callable[..., Awaitable[Episode]]:
    async def act(scene: Scene, _: bool) -> Episode:
        tree = netns.state_directory() / other_version.__name__.strip("_")
        if not tree.exists():
            other_version(tree, scene)
        members = scene.pick(LIMITERS)
        said = {member.name: len(member.lines()) for member in members}
        refused: Counter[str] = Counter()
        for member in members:
            refused.subtract(await _rejected(member))
        begin_s = time.monotonic()
        start_s = down_s = 0.0
        connected_s: list[float | None] = []
        others, disagreeing = 0, 0
        named: list[Check] = []
        for code in (tree, ROOT):
            for member in members:
                child.send(step=f"{member.name}: {'back' if code == tree else 'on'}")
                refused.update(await _rejected(member))
                killed_s = time.monotonic()
                member.kill()
                member.code = code
                await scene.revive([member])
                up_s = time.monotonic()
                down_s += up_s - killed_s + 0.2
                start_s = max(start_s, took_to_start(up_s - killed_s, [member]))
                connected_s.append(await took_s(lambda: _connected(scene), up_s, 2 * _CONNECTED_S))
                healed_s = time.monotonic()
                # A limiter that differs is found within this time, before the next restart.
                await trio.sleep(max(TOLD_S, RECOVER_S))
                for each in members:
                    status = await each.ask("/v1/status")
                    disagreeing += len(status["probes"]["disagreeing"])
                    others += status["version"].endswith(MARK) and code == tree
                if member is members[0]:
                    named += await _differ(scene, member)
        for member in members:
            refused.update(await _rejected(member))
        lines = [line for each in members for line in each.lines()[said[each.name] :]]
        found = {line for line in lines if _DIFFERS in line and WATCHED not in line}
        foreign = sum(count for reason, count in refused.items() if reason not in _OF_RESTARTS)
        slowest_s = None if None in connected_s else max(filter(None, connected_s))
        fabric, closed = scene.load.fabric, scene.datapath == NFQUEUE
        events = (RESTARTED_CLOSED, CLOSED[1]) if closed else (RESTARTED, KILLED[1])
        return Episode(
            begin_s, healed_s, recover_s=RECOVER_S, lost_s=down_s if closed else 0.0,
            least=min(promised(event, fabric) for event in events),
            lines=2 * RESTARTED_LINES + 4 * _RELOAD_LINES,
            checks=[
                # One, two, three of three at the steps to the other version.
                Check("daemons of the other version seen", others, least=1 + 2 + 3, most=1 + 2 + 3),
                ready(start_s),
                Check("all connected after", slowest_s, "s", most=_CONNECTED_S),
                Check("disagreements between versions", disagreeing + len(found), most=0),
                Check("datagrams refused, but for the restarts", foreign, most=0),
                *named,
            ],
        )  # fmt: skip

    return act


async def _connected(scene: Scene) -> bool:
    statuses = [(await member.ask("/v1/status"))["peers"] for member in scene.members.values()]
    return all(peers["connected"] == peers["configured"] for peers in statuses)


async def _rejected(member: Member) -> Counter[str]:
    return Counter((await member.ask("/v1/status"))["gossip"]["rejected"])


async def _differ(scene: Scene, victim: Member) -> list[Check]:
    """The checks that versions do compare: a limit that is written otherwise is named."""
    right = copy.deepcopy(victim.document["limit"][1])
    checks = []
    for limit, named in ((right | {"rate": "1500kbit"}, [WATCHED]), (right, [])):
        victim.document["limit"][1] = limit
        victim.write()
        await victim.reload()
        checks.append(await told(scene, victim, named))
    return checks


def _earlier(folder: Path, scene: Scene) -> Path:
    return earlier(folder, scene.earlier)


def _another_default(folder: Path, _: Scene) -> Path:
    return another_default(folder)


FAULTS = (
    Fault("upgrade", "a rollback to the version --from, and an upgrade", _upgrade(_earlier)),
    Fault("upgrade-default", "the same with a version of another default",
          _upgrade(_another_default)),
)  # fmt: skip
