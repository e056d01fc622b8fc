"""What `drlctl limit show NAME` shows of a limit."""

from __future__ import annotations

from drld.cli.output import NONE, burst, rate_or_none
from drld.control.schema import FleetView, LimitReport
from drld.units import human_duration, human_rate, human_size

UNTIL = "(until a restart or a reload)"


def limit_fields(report: LimitReport) -> list[tuple[str, str]]:
    """Names and values of all that is to be known of a limit."""
    depth = report["depth_bytes"]
    bucket = (
        "no bucket"
        if depth is None
        else f"fill {human_rate(report['fill_rate_bps'])}, depth {human_size(depth)}"
    )
    return [
        (
            "limit",
            f"{report['name']} (id {report['id']}), {report['allocator']}, {report['mode']}, "
            f"on failure {report['on_failure']}, excess {report['excess']}",
        ),
        (
            "rate",
            f"{human_rate(report['rate_bps'])}, "
            f"burst {burst(human_size(report['burst_bytes']), report['burst_is_automatic'])}, "
            f"every {human_duration(report['interval_s'])}",
        ),
        *([("weights", _weights(report["weights"]))] if report["weights"] else []),
        *([("flow", report["flow"])] if report["flow"] != "5-tuple" else []),
        *([("unsaved", f"{', '.join(report['unsaved'])} {UNTIL}")] if report["unsaved"] else []),
        ("in force", human_rate(report["limit_in_force_bps"])),
        ("demand", f"{human_rate(report['demand_bps'])}, {report['flows']} flows sampled"),
        ("fleet", _fleet(report["fleet"])),
        ("local limit", rate_or_none(report["local_limit_bps"])),
        ("enforcement", f"drop probability {report['drop_probability']:.3g}, {bucket}"),
        ("arrived", _amount(report["arrived_bytes"], report["arrived_packets"])),
        ("forwarded", _amount(report["forwarded_bytes"], report["forwarded_packets"])),
        ("dropped", _amount(report["dropped_bytes"], report["dropped_packets"])),
    ]


def _weights(weights: dict[str, float]) -> str:
    return ", ".join([*(f"{name} {weight:g}" for name, weight in weights.items()), "others 1"])


def _fleet(fleet: FleetView) -> str:
    local, remote = (
        human_rate(value) if fleet["quantity"] == "rate" else f"{value:.2f}"
        for value in (fleet["local"], fleet["remote"])
    )
    age = NONE if fleet["age_s"] is None else human_duration(fleet["age_s"])
    names = [*fleet["connected"], *([f"{fleet['unnamed']} more"] if fleet["unnamed"] else [])]
    connected = ", ".join(names) or "nobody"
    return f"{fleet['quantity']} {local} here, {remote} elsewhere ({connected}), age {age}"


def _amount(size: int, packets: int) -> str:
    return f"{human_size(size)} in {packets} packets"
