"""Remarks on limits of packets (`drld.config.remarks`)."""

from __future__ import annotations

from collections.abc import Iterable

from drld.burst import is_shallow
from drld.capture.spec import Match
from drld.config.problems import some
from drld.config.remarks import ignored
from drld.police.policer import Excess
from drld.policy import Policy
from drld.spec import LimiterSpec


def remarks(spec: LimiterSpec) -> list[str]:
    """A line for each remark on the limits of packets in a configuration."""
    limits = [limit.policy for limit in spec.limits if isinstance(limit.match, Match)]
    marking = [limit for limit in limits if limit.excess is Excess.MARK]
    return [*ignored("excess", marking), *_shallow(limits)]


def _shallow(limits: Iterable[Policy]) -> list[str]:
    shallow = [limit for limit in limits if is_shallow(limit.burst, limit.rate, limit.unit)]
    if not shallow:
        return []
    # Without their sizes, so that a reload that changes a rate does not log the line again.
    names = some([limit.name for limit in shallow])
    return [
        f"limit.burst: below 0.25 s of the rate: {names}: a lone TCP flow may then stay below the "
        'rate; write a larger burst, or "auto" (docs/operations.md)'
    ]
