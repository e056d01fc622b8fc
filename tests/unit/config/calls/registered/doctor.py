"""The check of the plane of calls."""

from collections.abc import Iterator

from drld.doctor.finding import Examined, Finding, unseen


def findings(examined: Examined) -> Iterator[Finding]:
    if examined.spec is None:
        yield unseen("calls", "no configuration", "drlctl doctor --config FILE")
