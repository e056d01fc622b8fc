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
    refill_s: float = 2.0
    root: bool = True
    dl: float = 1.0
    fall_s: float = 0.0
    rise_s: float = 0.0
    margin: float = 0.1
    cap: bool = True
    floor: int = 1
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
        fall = math.exp(-dt / p.fall_s) if p.fall_s else 0.0
        if weight < self._weight and not demand.idle:
            weight = self._weight * fall + weight * (1 - fall)
        elif self._awake_ns > _YOUNG_NS and p.rise_s:
            rise = math.exp(-dt / p.rise_s)
            weight = self._weight * rise + weight * (1 - rise)
        self._weight = weight
        if p.ledger and self._balance is not None and self._most:
            weight += max(self._most - self._balance - self._most * .05, 0.0) / p.refill_s / level * (1 if not whole else 0)
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
        if p.ledger and view.connected:
            news_s = view.news_ns / NS_PER_S + dt
            told = view.told
            total = max(weight, told) + view.remote
            strict = (1 + p.margin) * L * told / total if total else limit.static_rate
            lately = L * view.told_lately / (max(weight, view.told_lately) + view.remote) if total else limit.static_rate
            self._most = 0.0
            loan = limit.static_rate * news_s * p.dl
            part = max(strict, 0.0) / L
            most = limit.burst * self._part(part) + loan + limit.static_burst + item
            self._most = most
            if self._balance is None:
                self._balance = most
            # what the last interval was worth, at the strict rate then in force
            self._balance = min(self._balance + self._strict * dt - demand.forwarded_bytes, most)
            self._strict = strict
            soft = min(local, max(lately, strict, limit.static_rate))
            depth = limit.burst * self._part(max(local, 0.0) / L) 
            depth = max(depth, limit.static_rate / L * min(2 * limit.burst, p.idle_s * L)) + item
            depth = max(min(depth, self._balance), item)
            lend = (self._balance - depth) / (2 * interval_ns / NS_PER_S)
            fill = min(soft, strict + max(lend, 0.0))
            if self._balance < most * 0.9 and fill > strict * (1 - p.repay) and lately <= strict:
                fill = strict * (1 - p.repay)
            fill = max(fill, 0.0)
            if not total:
                fill = min(soft, limit.static_rate)
        else:
            fill = local
            if p.cap and view.connected:
                lately = p.rise * L * view.told_lately / (max(weight, view.told_lately) + view.remote) if weight + view.remote else 0
                fill = min(local, max(lately, limit.static_rate))
            depth = max(limit.burst * self._part(max(fill, 0) / L), limit.static_rate / L * min(2 * limit.burst, p.idle_s * L)) + item
            if not demand.idle:
                depth = max(depth, p.floor * item)
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
