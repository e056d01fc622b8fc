"""The limits that a limiter sends its clients, for the time in which it does not answer.

The format is JSON, because clients ask for it once in many seconds. A client ignores keys that it
does not use, so a limiter may send more.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from drld.client.protocol.frame import Kind, frame
from drld.client.protocol.long_value import shortened
from drld.errors import WireError

_MAX_WHOLE = 2**63 - 1
"""The largest number of a table: JSON has no bound, and one of 400 digits fits no float."""


@dataclass(frozen=True, slots=True)
class LimitInfo:
    """One limit on requests, as a client needs it."""

    name: str
    namespace: str
    where: Mapping[str, str]
    on_failure: str
    """`share`, `open` or `closed`."""
    enforced: bool
    """Whether the limit refuses anything: not in the modes `shadow` and `pause`."""
    unit: str
    item: int
    """The tokens that a request without a size costs."""
    quota: int
    """The number that the whole fleet admits in the window: requests, or bytes."""
    window_s: int
    rate: int
    """The global limit, tokens/s."""
    share_rate: int
    """The static share of the limiter, tokens/s."""
    share_burst: int | None
    """The depth of the static share, tokens; None: it has no bucket."""
    per: tuple[str, ...] = field(default=())
    """The names of pairs whose values together are a key with its own bucket."""
    burst: int | None = None
    """The burst of the limit, tokens: a request that costs more never passes; None: it is not
    known."""
    overrides: Mapping[str, tuple[int, int]] | None = field(default_factory=dict)
    """Quota and window of single keys, by `key_text`; None: there are more than a table has."""

    def quota_of(self, descriptor: Mapping[str, str]) -> tuple[int, int] | None:
        """Return quota and window of a request that falls under the limit; None: not known."""
        if self.overrides is None:
            return None
        own = self.overrides and self.overrides.get(key_text(descriptor[it] for it in self.per))
        return own or (self.quota, self.window_s)

    def covers(self, namespace: str, descriptor: Mapping[str, str]) -> bool:
        """Return whether a request falls under the limit."""
        return (
            namespace == self.namespace
            and all(
                name in descriptor and shortened(descriptor[name]) == value
                for name, value in self.where.items()
            )
            and all(name in descriptor for name in self.per)
        )


@dataclass(frozen=True, slots=True)
class LimitTable:
    """All limits, and the number of processes that ask this limiter."""

    limits: tuple[LimitInfo, ...]
    processes: int

    def requests_left(self, name: str | None, remaining: float | None) -> float | None:
        """Return a limit's remainder, in requests without a size; None: it is not known."""
        limit = next((it for it in self.limits if it.name == name), None)
        if remaining is None or limit is None or limit.unit != "bytes":
            return remaining
        return remaining / limit.item


def key_text(values: Iterable[str]) -> str:
    """Return a text for the values of a key; no other key has it."""
    return json.dumps([*map(shortened, values)])


def table_frame(limits: Iterable[LimitInfo], processes: int) -> bytes:
    """Return the frame that sends a client these limits."""
    table = {"processes": processes, "limits": [asdict(limit) for limit in limits]}
    return frame(Kind.LIMITS, 0, json.dumps(table, separators=(",", ":")).encode())


def read_table(body: bytes) -> LimitTable:
    """Return the limits of a frame.

    Raises:
        WireError: the body is no table of limits.
    """
    try:
        table = json.loads(body)
        limits = tuple(_limit(it) for it in table["limits"])
        return LimitTable(limits, max(_whole(table["processes"]), 1))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise WireError("value", "this is no table of limits") from None


def _limit(value: Mapping[str, Any]) -> LimitInfo:
    share_burst, burst = value["share_burst"], value.get("burst")
    overrides = value.get("overrides", {})
    return LimitInfo(
        name=_text(value["name"]),
        namespace=_text(value["namespace"]),
        where={_text(name): _text(it) for name, it in value["where"].items()},
        on_failure=_text(value["on_failure"]),
        enforced=value["enforced"] is True,
        unit=_text(value["unit"]),
        item=max(_whole(value["item"]), 1),
        quota=_whole(value["quota"]),
        window_s=_whole(value["window_s"]),
        rate=_whole(value["rate"]),
        share_rate=_whole(value["share_rate"]),
        share_burst=None if share_burst is None else _whole(share_burst),
        per=tuple(_text(name) for name in value["per"]),
        burst=None if burst is None else _whole(burst),
        overrides=None if overrides is None else {
            _text(key): (_whole(quota), _whole(window_s))
            for key, (quota, window_s) in overrides.items()
        },
    )  # fmt: skip


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _whole(value: object) -> int:
    if type(value) is not int or not 0 <= value <= _MAX_WHOLE:
        raise TypeError
    return value
