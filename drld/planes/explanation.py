"""What a limit does with one item, in words: a row of `drlctl explain`, of whatever plane.

Each plane explains its own items. The module `explain` that it registers (drld.planes) has:

- `is_meant(text)`: whether a text is to be one of its items, by its first words;
- `read(text)`: the item that a text is, or an InputError;
- `WORDS`: what is said of it (`Words`);
- `remarks(item)`: what is to be known of it, a sentence each;
- `Explainer(limits, misses=...).explain(item, policing, now_ns)`: an `Explanation` for each limit
  of the plane, or, without `misses`, for each that the item falls under;
- `captured(stream, words)`, if its items have captures: those of one, a `CapturedItem` each.
  `words` describe all of them. Or an InputError.
"""

from __future__ import annotations

from random import Random
from types import ModuleType
from typing import Any, Literal, NamedTuple, TypedDict

from drld.model import Enforcement, FlowId
from drld.planes import registered
from drld.police.policer import DRAW_BITS, MARK, Policer
from drld.policy import Mode
from drld.spec import LimitSpec
from drld.units import human_amount, human_rate


class Words(NamedTuple):
    """The words with which a plane describes its items."""

    item: str
    flow: str
    forwarded: str
    dropped: str
    drops: str


class Explanation(TypedDict):
    """The treatment of one item by one limit now. Rates and sizes are those of a `LimitReport`."""

    limit: str
    id: int
    mode: str
    misses: str | None
    """The first criterion of `match` that fails, and why; None: the item falls under the limit."""
    verdict: Literal["forward", "mark", "wait", "drop"] | None
    """The verdict; None: the item does not match the limit, or an earlier limit refuses it."""
    reason: str
    unit: str
    tokens_bytes: float | None
    """Tokens in the limit's bucket now; None: the limit has no bucket, or the item does not
    match."""
    depth_bytes: float | None
    fill_rate_bps: float
    drop_probability: float
    flow_rate_bps: float | None
    """Fair rate of a flow; None: flows are not policed one by one."""


class CapturedItem(NamedTuple):
    """One item of a capture."""

    time_ns: int
    """Unix time of the item, ns."""
    item: Any
    """The item, hashable, because equal items are explained once; None: no limit sees it."""
    text: str
    """A text from which `read` makes the item."""


def read_item(text: str) -> tuple[ModuleType, Any]:
    """The plane's module that reads this text, and the item that it is.

    Raises:
        InputError: it is an item of no plane.
    """
    plane = next(it for it in registered("explain") if it.is_meant(text))
    return plane, plane.read(text)


class _Spared(Random):
    """Draws that drop nothing, unless all is dropped."""

    def getrandbits(self, k: int, /) -> int:
        """The largest draw."""
        return (1 << k) - 1


_SPARED = _Spared(0)


def row(limit: LimitSpec, *, misses: str | None = None, reason: str = "") -> Explanation:
    """The explanation of a limit that does not check the item."""
    return Explanation(
        limit=limit.name,
        id=limit.id,
        mode=limit.policy.mode.value,
        misses=misses,
        verdict=None,
        reason=reason,
        unit=limit.policy.unit.name,
        tokens_bytes=None,
        depth_bytes=None,
        fill_rate_bps=0.0,
        drop_probability=0.0,
        flow_rate_bps=None,
    )


def tried(
    limit: LimitSpec,
    policing: tuple[Policer, Enforcement],
    flow: FlowId,
    amount: int,
    now_ns: int,
    *,
    words: Words,
    capable: bool = False,
) -> Explanation:
    """Explain what a limit does with an item that matches it.

    Args:
        limit: the limit.
        policing: a policer to try the item on, which is changed, and the record in force.
        flow: of the item.
        amount: what the item costs, tokens.
        now_ns: the time, ns.
        words: of the plane.
        capable: whether the item is ECN-capable.
    """
    policer, enforcement = policing
    bucket, unit = policer.bucket, limit.policy.unit
    bucket.settle(now_ns)
    tokens = bucket.tokens
    covered = bucket.conforms(amount)
    policer.read(now_ns)
    verdict = policer.police(flow, amount, now_ns, _SPARED, capable)
    counted = policer.read(now_ns)

    def shown(amount: int) -> str:
        return human_amount(unit.shown_amount(amount), unit.name)

    held = f"the bucket holds {shown(tokens)}, and the {words.item} needs {shown(amount)}"
    rate = human_rate(unit.shown_rate(enforcement.flow_rate), unit.name)
    above = f"its {words.flow} has used its fair rate, {rate}, and the bucket is not full"
    if limit.policy.mode is Mode.PAUSE:
        reason = f"the limit is paused: it counts, and {words.drops} nothing"
    elif policer.drop_threshold >> DRAW_BITS:
        reason = f"all {words.item}s are {words.dropped} at random"
    elif counted.dropped_items:
        reason = above if covered else held
    elif counted.marked_items:
        reason = above
    else:
        reason = held if enforcement.depth is not None else "there is no bucket"
    acts = words.dropped if counted.dropped_items else "marked" if counted.marked_items else ""
    if acts and limit.policy.mode is Mode.SHADOW:
        reason = f"shadow mode; it would be {acts}: {reason}"
    if 0 < policer.drop_threshold < 1 << DRAW_BITS:
        chance = f"{enforcement.drop_probability:.3g}"
        reason += f"; before that it may be {words.dropped} at random, with probability {chance}"
    found = row(limit, reason=reason)
    found["verdict"] = "drop" if not verdict else "mark" if verdict is MARK else "forward"
    if enforcement.depth is not None:
        found["tokens_bytes"] = unit.shown_amount(tokens)
        found["depth_bytes"] = unit.shown_amount(enforcement.depth)
        found["fill_rate_bps"] = unit.shown_rate(enforcement.fill_rate)
        found["flow_rate_bps"] = unit.shown_rate(enforcement.flow_rate) or None
    found["drop_probability"] = enforcement.drop_probability
    return found
