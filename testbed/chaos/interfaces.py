"""The limited interface goes down and up, or is removed and made again."""

from __future__ import annotations

import time
from functools import partial

import trio

from testbed import MTU, netns
from testbed.chaos.fault import NFQUEUE, Episode, Fault, took_s
from testbed.chaos.members import Member
from testbed.chaos.promises import STEADY, left_by
from testbed.chaos.scene import RATE, Scene, watched_address
from testbed.harness.finding import Check
from testbed.topology import OFFLOADS, SINK, End, Veth, limiter_role, set_offloads

_DOWN_S = {False: 5.0, True: 1.5}
_AGAIN_S = 0.5
"""Longest time for which a new interface may be unlimited, or without stamps."""
_PATIENCE_S = 5.0


def _link(scene: Scene, member: Member) -> Veth:
    """The link from the limiter to the sink."""
    role = limiter_role(member.name)
    return next(
        veth for veth in scene.layout.veths if (veth.near.role, veth.near.device) == (role, "out")
    )


def _routes(scene: Scene, member: Member) -> None:
    """The settings that are lost with the interface, as a network manager restores them."""
    link = _link(scene, member)
    watched = watched_address(member.name, scene.layout)
    _ip(link.near.role, f"route replace {watched}/32 via {link.far.address}")
    for number, limiter in enumerate(scene.layout.path.values(), 1):
        if limiter == member.name:
            _ip(SINK, f"route replace 10.1.{number}.0/24 via {link.near.address}")


async def _down(scene: Scene, quick: bool) -> Episode:
    (victim,) = scene.pick(1)
    link = _link(scene, victim)
    near, far = link.near, link.far
    begin_s = time.monotonic()
    _ip(near.role, f"link set {near.device} down")
    await trio.sleep(_DOWN_S[quick])
    _ip(near.role, f"link set {near.device} up")
    # Permanent neighbours are lost, like routes. If a packet had asked for the neighbour as the
    # interface went down, the kernel would ask again only once a second.
    _ip(near.role, _neighbour(near, far))
    _routes(scene, victim)
    healed_s = time.monotonic()
    return _episode(begin_s, healed_s)


async def _recreate(scene: Scene, quick: bool) -> Episode:
    (victim,) = scene.pick(1)
    link = _link(scene, victim)
    begin_s = time.monotonic()
    _ip(link.near.role, f"link delete {link.near.device}")
    await trio.sleep(_DOWN_S[quick])
    _make(link)
    _routes(scene, victim)
    healed_s = time.monotonic()
    episode = _episode(begin_s, healed_s)
    episode.overshoot, episode.lines = RATE // 5, 1
    if scene.datapath != NFQUEUE:

        async def limited() -> bool:
            counters = (await victim.ask("/v1/status"))["datapath"]["counters"]
            return bool(counters["reattached"])

        took = await took_s(limited, healed_s, _PATIENCE_S)
        episode.checks.append(Check("limited again after", took, "s", most=_AGAIN_S))
    return episode


def _episode(begin_s: float, healed_s: float) -> Episode:
    """Packets of the interface are lost, and the other limiters keep their shares."""
    lost_s = healed_s - begin_s + 0.2
    return Episode(begin_s, healed_s, recover_s=6.0, lost_s=lost_s, least=STEADY * left_by(1))


def _make(link: Veth) -> None:
    """Make another pair with the same names, wired as before (`testbed.topology.build`)."""
    near, far = link.near, link.far
    _ip(
        near.role,
        f"link add name {near.device} address {near.mac} mtu {MTU} type veth peer name "
        f"{far.device} address {far.mac} mtu {MTU} netns {netns.namespace(far.role)}",
    )
    for end, other in ((near, far), (far, near)):
        wire_only = partial(set_offloads, [end.device], OFFLOADS, on=False)
        netns.within(netns.namespace(end.role), wire_only)
        _ip(end.role, f"address add {end.address}/24 dev {end.device}")
        _ip(end.role, f"link set dev {end.device} up")
        _ip(end.role, _neighbour(end, other))


def _neighbour(end: End, other: End) -> str:
    """Makes the other end a permanent neighbour."""
    return f"neighbour replace {other.address} lladdr {other.mac} dev {end.device} nud permanent"


def _ip(role: str, command: str) -> None:
    netns.run(["ip", "-n", netns.namespace(role), *command.split()])


FAULTS = (
    Fault("interface-down", "the limited interface goes down and comes back", _down),
    Fault("interface-new", "the limited interface is deleted and made again", _recreate),
)
