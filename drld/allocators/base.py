"""An allocator: a function from demand and global view to an `Enforcement`.

A new allocator is one file with one class, and one line in `drld/allocators/__init__.py`. Its state
(FPS keeps its weight) changes only in `allocate`, so that the daemon, the simulator and the tests
drive the same code.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, get_type_hints

from drld.model import Demand, Enforcement, GlobalView, Quantity
from drld.record import record
from drld.units import BYTES

MAX_DRAIN = 2.0**53
"""Fastest drain, tokens/s: it empties the deepest bucket in a microsecond, and fits the datapath's
integers."""
INITIAL_WINDOW_ITEMS = 12
"""Smallest depth at which a flow can begin: its SYN and initial window (RFC 6928)."""


@dataclass(frozen=True, slots=True)
class NoParameters:
    """The parameters of an allocator without any."""


@dataclass(frozen=True, slots=True)
class InForce:
    """The limit as it is in force on this limiter at this moment."""

    rate: float
    """Global limit less the shares of disconnected limiters, tokens/s (paper, section 5.6)."""
    burst: float
    """Depth of the one bucket that the connected limiters emulate together, tokens."""
    static_rate: float
    """This limiter's static share of the whole limit, tokens/s."""
    static_burst: float
    """This limiter's static share of the whole depth, tokens."""
    weight: float = 1.0
    """Relative weight of this limiter's flows; a limiter without a configured weight has 1."""
    interval_ns: int = 0
    """The limit's estimate interval, ns: the longest time to the next tick if ticks are on time."""
    item: int = BYTES.item
    """Typical item of the limit's unit, tokens: a packet of full size."""
    whole_rate: float = 0.0
    """The limit itself, tokens/s."""
    whole_burst: float = 0.0
    """The depth of the whole limit, tokens."""
    least_burst: float = 0.0
    """The smallest static share of the depth of a limiter that has one, tokens."""


@record(frozen=True, slots=True)
class Allocation:
    """The decision of an allocator for the next interval."""

    value: float
    """The value for the fleet, in the allocator's `quantity`."""
    enforcement: Enforcement
    local_limit: float | None
    """Rate this limiter may forward on its own, tokens/s; None where there is no such rate."""
    second: float = 0.0
    """The value for the fleet, in the allocator's `second` quantity."""


class Allocator(ABC):
    """One limit's allocator on one limiter."""

    quantity: ClassVar[Quantity] = Quantity.RATE
    """The quantity that the fleet's limiters tell each other."""
    second: ClassVar[Quantity | None] = None
    """A further quantity that it shares, in updates of its own."""
    counts_loss: ClassVar[bool] = False
    """Whether the allocator's bound must hold although updates are lost. If so, `GlobalView.told`
    covers the longest age of a value that peers count; otherwise the age of news without loss."""
    follows_demand: ClassVar[bool] = True
    """Whether records depend on demand."""
    keeps_share: ClassVar[bool] = False
    """Whether its record holds a limiter that hears no peer to the static share. Otherwise such a
    limiter enforces that share as a plain bucket."""
    Parameters: ClassVar[type[Any]] = NoParameters
    """Frozen dataclass of the allocator's parameters, all with defaults. A field's type is
    annotated with its bounds in words, which `require` quotes and the reference lists."""

    def __init__(self, parameters: Any) -> None:
        """`parameters` is an instance of this class's `Parameters`."""
        self.parameters = parameters

    @property
    def settled(self) -> bool:
        """Whether ticks of an idle limit change nothing, as long as the view stays what it is."""
        return True

    @abstractmethod
    def allocate(
        self, demand: Demand, view: GlobalView, limit: InForce, interval_ns: int
    ) -> Allocation:
        """End an estimate interval of `interval_ns`."""


def bucket(rate: float, burst: float, floor: int = 0) -> Enforcement:
    """A token bucket of `rate` tokens/s (signed) and `burst` tokens, at least `floor` deep.

    It drains no faster than `MAX_DRAIN`, since the demand of peers may be any number. A burst above
    0 is at least one token deep: a full bucket passes a packet of any size, one of no depth none.
    """
    depth = max(round(burst), floor, 1 if burst > 0 else 0)
    return Enforcement(fill_rate=round(max(rate, -MAX_DRAIN)), depth=depth)


def require(parameters: object, name: str, holds: bool) -> None:
    """Check one field of an allocator's `Parameters`.

    Raises:
        ValueError: it does not hold; the message begins with the field's name.
    """
    if not holds:
        hint = get_type_hints(type(parameters), include_extras=True)[name]
        value = getattr(parameters, name)
        raise ValueError(f"{name}: must be {hint.__metadata__[0]} (got {value})")
