"""`[packets]`: the table of a configuration that says how packets are policed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, PlainValidator

from drld.capture.registered.limit_table import MatchTable, PacketLimitTable
from drld.capture.spec import PacketsSpec
from drld.config.fields import Kind
from drld.config.plane_tables import PlaneTables
from drld.config.problems import Location, Problems
from drld.config.schema import PlaneTable


def _datapath(value: object) -> str:
    if value not in ("auto", "kernel", "nfqueue"):
        raise ValueError('"auto", "kernel" or "nfqueue"')
    return str(value)


DatapathName = Annotated[
    str, PlainValidator(_datapath), Kind('`"auto"`, `"kernel"` or `"nfqueue"`')
]


class PacketsTable(PlaneTable):
    """`[packets]`: how this daemon polices packets.

    The table may be left out. A change of it takes effect when the daemon restarts.
    """

    datapath: DatapathName = "auto"
    """The datapath; `"auto"` is `kernel` if the host can load it, else `nfqueue`."""
    firewall: Literal["auto", "nft", "iptables", "none"] = "auto"
    """Tool that installs the rules of nfqueue; with `"none"` the log has the rules, and the
    operator installs them."""
    queue: Annotated[int, Field(ge=0, le=65535)] | None = None
    """NFQUEUE number. Default: a free one."""
    timestamps: Literal["auto", "ebpf", "kernel", "read"] = "auto"
    """Time at which nfqueue charges a packet: its arrival as eBPF or the kernel saw it, or when the
    daemon read it; `"auto"` is the first that the host has (docs/nfqueue-datapath.md)."""

    def spec(self) -> PacketsSpec:
        """How this daemon polices packets."""
        return PacketsSpec(**self.model_dump())

    def check(self, limits: Mapping[int, PacketLimitTable], problems: Problems) -> None:
        """Check that the datapath, if the file names it, can do all that the file asks for."""
        if self.datapath == "kernel":
            _check_kernel(self, problems)
        elif self.datapath == "nfqueue":
            _check_nfqueue(limits, problems)


def _check_kernel(packets: PacketsTable, problems: Problems) -> None:
    """Check that the file does not ask the kernel datapath for what only nfqueue has."""
    for key, default, allowed in (
        ("timestamps", "auto", '"auto": datapath = "kernel" judges packets as they arrive'),
        ("firewall", "auto", '"auto": datapath = "kernel" needs no firewall'),
        ("queue", None, 'left out: datapath = "kernel" has no queue'),
    ):
        if getattr(packets, key) != default:
            problems.refuse(["packets", key], getattr(packets, key), allowed)


def _check_nfqueue(limits: Mapping[int, PacketLimitTable], problems: Problems) -> None:
    """Check that nfqueue can do what `on_failure` says (see `drld.capture.queue_hooks.plan`)."""
    first: dict[tuple[str | None, str | None], tuple[int, bool]] = {}
    for index, limit in limits.items():
        if limit.on_failure is None and limit.mode != "enforce":
            continue  # A limit in another mode follows the other limits of its hook.
        where: Location = ["limit", index, "on_failure"]
        is_open = limit.on_failure == "open"
        other, others = first.setdefault((limit.match.in_, limit.match.out), (index, is_open))
        if limit.on_failure == "share":
            problems.refuse(
                where,
                "share",
                '"open" or "closed": datapath = "nfqueue" cannot keep up a share',
            )
        elif is_open != others:
            problems.add(
                where,
                f'must be "open" on both this limit and limit[{other}], or on neither: with '
                'datapath = "nfqueue" the limits of an interface and direction share a rule',
            )


TABLES = PlaneTables(PacketsSpec.key, PacketsTable, PacketLimitTable, MatchTable)
