"""draft"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from drld.allocators.base import (
    INITIAL_WINDOW_PACKETS,
    PACKET_BYTES,
    Allocation,
    Allocator,
    InForce,
)
from drld.estimate.flows import FlowState
from drld.model import NS_PER_S, Demand, Enforcement, GlobalView, Quantity

_YOUNG_NS = NS_PER_S // 4
_HOLD_NS = NS_PER_S // 2
_RECENT_NS = NS_PER_S // 10
_INITIAL = INITIAL_WINDOW_PACKETS * PACKET_BYTES


@dataclass(frozen=True, slots=True)
class FairParameters:
    headroom: float = 0.1
    whole: float = 0.25
    reach: float = 1.5
    reserve: float = 0.25
    slack: float = 1.0
    flow_s: float = 0.25
    ledger: bool = True
    repay: float = 0.02
    refill_s: float = 1.0
    root: bool = True
    dl: float = 1.0
    fall_s: float = 0.0
    rise_s: float = 0.0
    margin: float = 0.1
    cap: bool = True
    full: bool = False
    floor: int = 6
    floor_s: float = 2.0
    items: int = 2
    vrefill: bool = True
    rise: float = 2.0
    idle_s: float = 0.15


class Fair(Allocator):
    quantity = Quantity.WEIGHT
    Parameters = FairParameters

    def __init__(self, parameters: FairParameters) -> None:
        super().__init__(parameters)
        self.parameters: FairParameters = parameters
        self._level: float | None = None
        self._recent = 0.0
        self._awake_ns = 0
        self._balance: float | None = None
        self._strict = 0.0
        self._most = 0.0
        self._weight = 0.0
        self._missing = 0.0
        self._tokens = 1e18
        self._fill = 0.0

    def allocate(
        self, demand: Demand, view: GlobalView, limit: InForce, interval_ns: int
    ) -> Allocation:
        p = self.parameters
        dt = interval_ns / NS_PER_S
        L, W = limit.rate, view.remote
        if L <= 0:
            return Allocation(0.0, Enforcement(fill_rate=0, depth=0), 0.0)
        if demand.idle:
            self._awake_ns = 0
        else:
            self._awake_ns += interval_ns
        wants, whole, copies = self._wants(demand, L)
        level = self._solve(wants, whole, copies, W, L)
        self._level = level
        want = copies * (whole * level + sum(min(d, level) for d in wants))
        # reach
        alpha = math.exp(-interval_ns / _RECENT_NS)
        self._recent = alpha * self._recent + (1 - alpha) * demand.instant_rate
        if self._awake_ns > _YOUNG_NS:
            want = min(want, p.reach * self._recent + 2 * PACKET_BYTES * NS_PER_S / _RECENT_NS)
        weight = want / level
        weight = 0.0 if demand.idle else weight
        if not whole and self._missing > 0.05 * PACKET_BYTES:
            weight = max(weight, (self._missing / p.refill_s) / level)
        self._weight = weight
        total = weight + W
        local = L * weight / total if total else limit.static_rate
        enforcement, local = self._enforce(demand, view, limit, weight, local, whole, wants, copies, dt, interval_ns)
        return Allocation(weight, enforcement, local)

    def _wants(self, demand: Demand, L: float):
        p = self.parameters
        level = self._level if self._level is not None else L
        wants, whole, sampled = [], 0, 0.0
        for flow in demand.sample:
            sampled += flow.fast
            if flow.silent_ns >= 300_000_000 and flow.rate == 0.0:
                continue
            if flow.age_ns < _YOUNG_NS and flow.last:
                rate = flow.rate
                d = 2 * max(rate, flow.last)
                wants.append(d)
            elif flow.unhit_ns < _HOLD_NS and flow.fast >= p.whole * level:
                whole += 1
            else:
                wants.append((1 + p.headroom) * flow.fast)
        copies = 1.0
        if demand.rest > 0:
            if sampled > 0:
                copies = 1 + demand.rest / sampled
            else:
                wants.append((1 + p.headroom) * demand.rest)
        return wants, whole, copies

    @staticmethod
    def _solve(wants, whole, copies, remote, L):
        wants = sorted(wants)
        left, units = L, copies * (whole + len(wants)) + remote
        for d in wants:
            if units <= 0:
                return L
            level = left / units
            if d >= level:
                return min(level, L)
            left -= copies * d
            units -= copies
        return min(left / units, L) if units > 1e-9 and left > 0 else L

    def _enforce(self, demand, view, limit, weight, local, whole, wants, copies, dt, interval_ns):
        p = self.parameters
        L = limit.rate
        item = PACKET_BYTES
        total = weight + view.remote
        fill = local
        if view.connected:
            m = view.told_lately
            lately = p.rise * L * m / (max(weight, m) + view.remote) if m else 0.0
            fill = min(local, max(lately, limit.static_rate))
        floor = min(max(p.floor_s * limit.static_rate, item), p.floor * item)
        idle_depth = limit.static_rate / L * min(2 * limit.burst, p.idle_s * L) + p.items * item
        depth = max(limit.burst * self._part(max(fill, 0) / L) + item, idle_depth)
        if not demand.idle:
            depth = max(depth, floor)
        if p.ledger and view.connected:
            m = view.told if p.full else view.told_lately
            strict = (1 + p.margin) * L * m / (max(weight, m) + view.remote) if m else 0.0
            if not total: strict = limit.static_rate
            loan = max(limit.static_rate * (view.news_ns / NS_PER_S + dt) * p.dl, limit.static_burst)
            most = limit.burst * self._part(min(strict / L,1)) + loan + max(floor, p.items * item)
            if self._balance is None:
                self._balance = most
            self._balance = min(self._balance + self._strict * dt - demand.forwarded_bytes, most)
            self._strict = strict
            depth = max(min(depth, self._balance), item)
            fill = max(0,min(fill, strict + (self._balance - depth) / (2 * dt)))
        # bucket estimate
        self._tokens = min(self._tokens + self._fill * dt - demand.forwarded_bytes, depth)
        self._fill = fill
        self._missing = max(idle_depth - self._tokens, 0.0)
        if p.ledger and view.connected and p.vrefill:
            self._missing = max(self._missing, most - self._balance)
        # flows
        n = whole + len(wants)
        flow_rate = flow_depth = reserve = 0
        if n >= 2:
            phi = self._solve(wants, whole, copies, 0.0, fill) * p.slack if fill > 0 else 0
            phi = max(phi, 64.0)
            flow_rate = round(phi)
            flow_depth = round(max(p.flow_s * phi, _INITIAL))
            reserve = round(p.reserve * depth)
        self.debug = dict(w=weight, local=local, fill=fill, depth=depth, phi=flow_rate, whole=whole, bal=self._balance, strict=self._strict)
        return Enforcement(fill_rate=round(fill), depth=round(depth), flow_rate=flow_rate, flow_depth=flow_depth, reserve=reserve), fill

    def _part(self, x):
        if not self.parameters.root:
            return x
        return min(math.sqrt(x), 2 * x)
