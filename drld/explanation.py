"""What a limit does with one item, in words: a row of `drlctl explain`, of whatever plane.

Each plane explains its own items. The module `explain` that it registers (drld.planes) has:

- `read(text)`: the item that a text is, or an InputError;
- `remarks(item)`: what is to be known of it, a sentence each;
- `explain(item, limits, policing, now_ns)`: an `Explanation` for each limit of the plane;
- `captured(stream, words)`: the items of a capture, with their times in ns, as texts for `read`;
  None is something that no limit sees. `words` describe all of them. Or an InputError.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, Literal, TypedDict

from drld.planes import first_to_read


class Explanation(TypedDict):
    """What one limit does with one item now; rates and sizes are those of a `LimitReport`."""

    limit: str
    id: int
    mode: str
    misses: str | None
    """The first criterion of `match` that fails, and why; None: the item falls under the limit."""
    verdict: Literal["forward", "mark", "drop"] | None
    """None: the limit does not check the item, for it misses, or an earlier limit refuses it."""
    reason: str
    unit: str
    tokens_bytes: float | None
    """In the limit's bucket now; None: there is no bucket, or the item misses."""
    depth_bytes: float | None
    fill_rate_bps: float
    drop_probability: float
    flow_rate_bps: float | None
    """Fair rate of a flow; None: flows are not policed one by one."""


def read_item(text: str) -> tuple[ModuleType, Any]:
    """The plane's module that reads this text, and the item that it is.

    Raises:
        InputError: it is an item of no plane; the reason of each.
    """
    return first_to_read("explain", lambda plane: (plane, plane.read(text)))
