"""Taking a configuration over as far as the host goes along.

A limit of the fleet may ask for what this host cannot do: an interface that it does not have, say.
It must keep neither the other limits nor, what matters more, the members from coming into force: a
limiter that does not see the fleet grow enforces too large a share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from drld.errors import ConfigError, DatapathError
from drld.spec import LimiterSpec

MAX_SINGLE = 64
"""Changed limits that are tried one by one; each try attaches all of them."""


def take_over(
    old: LimiterSpec, new: LimiterSpec, reconfigure: Callable[[LimiterSpec], None]
) -> tuple[LimiterSpec, Mapping[int, str]]:
    """Put `new` into force; return what is in force then, and why some limits are as in `old`.

    Raises:
        ConfigError, DatapathError: not even the fleet could be taken over; `old` stays.
    """
    if new == old:
        return old, {}
    try:
        reconfigure(new)
    except (ConfigError, DatapathError):
        pass
    else:
        return new, {}
    # The fleet first, then what goes, then what comes or changes.
    limits = {limit.id: limit for limit in old.limits}
    wanted = {limit.id: limit for limit in new.limits}
    steps = [limits, {limit_id: limits[limit_id] for limit_id in limits if limit_id in wanted}]
    current = old
    for limits in steps:
        step = replace(new, limits=tuple(limits.values()))
        if step != current:
            reconfigure(step)
            current = step
    refused: dict[int, str] = {}
    changed = [limit for limit in new.limits if limits.get(limit.id) != limit]
    for limit in changed[:MAX_SINGLE]:
        limits = {**limits, limit.id: limit}
        step = replace(new, limits=tuple(limits.values()))
        try:
            reconfigure(step)
        except (ConfigError, DatapathError) as error:
            refused[limit.id] = " ".join(str(error).split())
            limits = {known.id: known for known in current.limits}
        else:
            current = step
    for limit in changed[MAX_SINGLE:]:
        refused[limit.id] = f"not tried: one of more than {MAX_SINGLE} changed limits is refused"
    return current, refused
