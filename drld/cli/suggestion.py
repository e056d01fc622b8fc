"""A suggested rate and burst, with the reasons, as commands show them."""

from __future__ import annotations

from drld.control.schema.limits import SuggestionReport
from drld.units import (
    BYTES,
    format_rate,
    format_size,
    human_amount,
    human_duration,
    human_rate,
)


def suggestion_fields(report: SuggestionReport) -> list[tuple[str, str]]:
    """Names and values of the lines that show a suggestion."""
    unit, name = report["unit"], report["limit"]
    interval = human_duration(report["interval_s"])
    fields = [
        (
            "rate",
            f"{human_rate(report['rate_bps'], unit)}: {report['part']:.4g} of the "
            f"{report['seconds']} seconds with traffic in {human_duration(report['seen_s'])} had "
            "no more (in steps of 9 %)",
        ),
        (
            "burst",
            f"{human_amount(report['burst_bytes'], unit)}: with this rate and burst "
            f"nothing would have been dropped (counted every {interval})",
        ),
    ]
    if unit == BYTES.name:
        rate = format_rate(round(report["rate_bps"] / 8))
        burst = format_size(round(report["burst_bytes"]))
        fields.append(("set", f"drlctl limit set {name} --rate {rate} --burst {burst}"))
    return fields
