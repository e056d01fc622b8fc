"""The limited interface goes down and up, or is removed and made again."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial

import trio

from testbed import MTU, netns
from testbed.chaos.fault import NFQUEUE, Bounds, Episode, Fault, took_s
from testbed.chaos.members import Member
from testbed.chaos.promises import STEADY, left_by
from testbed.chaos.scene import RATE, Scene, watched_address
from testbed.harness.finding import Check
from testbed.topology import OFFLOADS, SINK, Veth, limiter_role, set_offloads

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
    sink = scene.layout.sink_address[member.name]
    watched = watched_address(member.name, scene.layout)
    netns.run(["ip", "-n", member.namespace, "route", "replace", f"{watched}/32", "via", sink])
    for number, (_, limiter) in enumerate(scene.layout.path.items(), 1):
        if limiter == member.name:
            gateway = _link(scene, member).near.address
            netns.run(
                [
                    *("ip", "-n", netns.namespace(SINK), "route", "replace"),
                    *(f"10.1.{number}.0/24", "via", gateway),
                ]
            )


async def _down(scene: Scene, quick: bool) -> Episode:
    (victim,) = scene.pick(1)
    begin_s = time.monotonic()
    netns.run(["ip", "-n", victim.namespace, "link", "set", "out", "down"])
    await trio.sleep(_DOWN_S[quick])
    netns.run(["ip", "-n", victim.namespace, "link", "set", "out", "up"])
    # Permanent neighbours are lost, like routes. A neighbour that a packet asked for as the
    # interface went down would be asked for again once a second only, whatever comes up meanwhile.
    far = _link(scene, victim).far
    entry = f"neighbour replace {far.address} lladdr {far.mac} dev out nud permanent"
    netns.run(["ip", "-n", victim.namespace, *entry.split()])
    _routes(scene, victim)
    healed_s = time.monotonic()
    return Episode(_bounds(healed_s - begin_s), begin_s, healed_s)


async def _recreate(scene: Scene, quick: bool) -> Episode:
    (victim,) = scene.pick(1)
    link = _link(scene, victim)
    begin_s = time.monotonic()
    netns.run(["ip", "-n", victim.namespace, "link", "delete", "out"])
    await trio.sleep(_DOWN_S[quick])
    _make(link)
    _routes(scene, victim)
    healed_s = time.monotonic()
    checks = []
    if scene.datapath != NFQUEUE:

        async def limited() -> bool:
            counters = (await victim.ask("/v1/status"))["datapath"]["counters"]
            return bool(counters["reattached"])

        took = await took_s(limited, healed_s, _PATIENCE_S)
        checks.append(Check("limited again", took, "s", most=_AGAIN_S))
    bounds = replace(_bounds(healed_s - begin_s), overshoot=RATE // 5, lines=1)
    return Episode(bounds, begin_s, healed_s, checks=checks)


def _bounds(absent_s: float) -> Bounds:
    return Bounds(recover_s=6.0, lost_s=absent_s + 0.2, least=STEADY * left_by(1))


def _make(link: Veth) -> None:
    """Another one of the same name, wired as before (`testbed.topology.build`)."""
    near, far = link.near, link.far
    netns.run(
        ["ip", "-batch", "-"],
        stdin=f"link add name {near.device} address {near.mac} mtu {MTU} "
        f"netns {netns.namespace(near.role)} type veth peer name {far.device} "
        f"address {far.mac} mtu {MTU} netns {netns.namespace(far.role)}\n",
    )
    for end, other in ((near, far), (far, near)):
        namespace = netns.namespace(end.role)
        netns.within(namespace, partial(set_offloads, [end.device], OFFLOADS, on=False))
        lines = [
            f"address add {end.address}/24 dev {end.device}",
            f"link set dev {end.device} up",
            f"neighbour replace {other.address} lladdr {other.mac} dev {end.device} nud permanent",
        ]
        netns.run(["ip", "-n", namespace, "-batch", "-"], stdin="".join(f"{x}\n" for x in lines))


FAULTS = (
    Fault("interface-down", "the limited interface goes down and comes back", _down),
    Fault("interface-new", "the limited interface is deleted and made again", _recreate),
)
