"""The remark of the plane of calls."""

from drld.spec import LimiterSpec
from tests.unit.config.calls.spec import Calls


def remarks(spec: LimiterSpec) -> list[str]:
    targets = [limit.match for limit in spec.limits if isinstance(limit.match, Calls)]
    return [f"calls to {it.service}: from anyone" for it in targets if it.caller is None]
