"""The plane of calls in a daemon."""

from __future__ import annotations

from drld.daemon.running_plane import PlaneContext, RunningPlane
from drld.police.no_datapath import NoDatapath
from drld.spec import LimiterSpec

from ..spec import Calls, CallsSpec


def plane(context: PlaneContext, spec: LimiterSpec) -> RunningPlane | None:
    """None: the daemon does not use the default port."""
    if spec.plane(CallsSpec).port != CallsSpec().port:
        return None
    return RunningPlane(Calls, NoDatapath(f"{context.path}: calls are not policed"))
