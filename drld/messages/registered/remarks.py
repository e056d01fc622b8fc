"""Remarks on brokers and on limits on messages (`drld.config.remarks`)."""

from __future__ import annotations

from ipaddress import ip_address

from drld.config.problems import some
from drld.messages.penalty import tail_delay
from drld.messages.spec import ITEM, BrokerSpec, Excess, MessageMatch, MessagesSpec
from drld.model import NS_PER_S
from drld.policy import Policy
from drld.spec import LimiterSpec, format_endpoint
from drld.units import format_duration, human_duration

LONG_NS = 60 * NS_PER_S
"""The longest time between the tokens of a limit that clients wait for."""


def remarks(spec: LimiterSpec) -> list[str]:
    """The remarks on a configuration's brokers and limits on messages, one line each."""
    brokers = spec.plane(MessagesSpec).brokers
    limits = [
        (limit.policy, limit.match)
        for limit in spec.limits
        if isinstance(limit.match, MessageMatch)
    ]
    policies = [policy for policy, _ in limits]
    return [
        *_plain(brokers),
        *_open(brokers),
        *_unlimited(brokers, [match for _, match in limits]),
        *_split(spec, policies),
        *_slow(policies),
        *_each(spec, limits),
    ]


def _outside(broker: BrokerSpec) -> list[tuple[str, int]]:
    """The addresses of a broker that other hosts reach."""
    found = [it for it in broker.listen if not isinstance(it, str)]
    return [it for it in found if not ip_address(it[0]).is_loopback]


def _plain(brokers: tuple[BrokerSpec, ...]) -> list[str]:
    return [
        f"broker.listen: {broker.name}: {format_endpoint(*it)}: nothing is encrypted, passwords "
        "neither: set broker.certificate, or let only a trusted network reach it"
        for broker in brokers
        if broker.tls is None
        for it in _outside(broker)
    ]


def _open(brokers: tuple[BrokerSpec, ...]) -> list[str]:
    found = [
        broker.name
        for broker in brokers
        if not isinstance(broker.server, str) and not ip_address(broker.server[0]).is_loopback
    ]
    if not found:
        return []
    return [
        f"broker.server: {some(found)}: clients that reach the broker itself are not limited: let "
        "only drld reach it"
    ]


def _unlimited(brokers: tuple[BrokerSpec, ...], matches: list[MessageMatch]) -> list[str]:
    named = {name for match in matches for name in match.broker}
    found = [broker.name for broker in brokers if broker.name not in named]
    if not found:
        return []
    return [f"broker: {some(found)}: no limit is about these: their messages pass and are counted"]


def _split(spec: LimiterSpec, policies: list[Policy]) -> list[str]:
    members = len(spec.members)
    found = [
        f"{policy.name} ({human_duration(_penalty(policy, members))})"
        for policy in policies
        if policy.excess is Excess.WAIT and policy.keyed is None and policy.allocator == "static"
    ]
    if members == 1 or not found:
        return []
    return [
        f"limit.burst: split over {members} limiters, the 99th percentile of the access delay is "
        f"above 0 if the burst is just enough for one: {some(found)} (docs/messages.md)"
    ]


def _penalty(policy: Policy, members: int) -> float:
    """The 99th percentile of the access delay by the law of the tail, s."""
    return tail_delay(policy.rate / ITEM, policy.burst / ITEM, 1 / members)


def _slow(policies: list[Policy]) -> list[str]:
    found = [
        policy.name
        for policy in policies
        if policy.excess is Excess.WAIT and LONG_NS * policy.rate < ITEM * NS_PER_S
    ]
    if not found:
        return []
    return [
        f"limit.rate: less than a message in {format_duration(LONG_NS)}: {some(found)}: clients "
        'give up before their messages leave: use excess = "drop"'
    ]


def _each(spec: LimiterSpec, limits: list[tuple[Policy, MessageMatch]]) -> list[str]:
    found = [policy.name for policy, match in limits if match.client is not None]
    members = len(spec.members)
    if members == 1 or not found:
        return []
    return [
        f"limit.match.client: {some(found)}: each limiter has buckets of its own: a client that "
        f"publishes through all {members} has {members} times the rate "
        "(docs/messages-operations.md)"
    ]
