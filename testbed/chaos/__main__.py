"""`python -m testbed.chaos`: carries out faults by name, and checks the promises about them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click

from drld.gossip.fabrics import FABRICS
from testbed.chaos import report
from testbed.chaos.campaign import Campaign
from testbed.chaos.fault import KERNEL, NFQUEUE
from testbed.chaos.registry import FAULTS, stages
from testbed.chaos.scene import FABRIC
from testbed.chaos.soak import SOAK
from testbed.chaos.stage import Job
from testbed.harness.markdown import aligned
from testbed.harness.page import Page
from testbed.harness.progress import Board
from testbed.interrupt import run_to_end
from testbed.link import probed
from testbed.provenance import head

_PAGE = Page(
    "chaos", "Faults done to fleets of real daemons", "scripts/chaos --docs", "../docs/chaos.md",
    [*FABRICS, SOAK],
)  # fmt: skip
_RESULT = "chaos.json"
_JOBS = {False: 1, True: 3}
"""Default number of fleets at a time, by `--quick`."""


_EPILOG = aligned(
    [
        *([fault.name, fault.title] for fault in FAULTS.values()),
        [SOAK, "churn for --seconds; only if it is named"],
    ]
)


@click.command(epilog=f"\b\nFaults:\n{_EPILOG}", context_settings={"show_default": True})
@click.argument("names", nargs=-1, type=click.Choice([*FAULTS, SOAK]), metavar="[FAULT]...")
@click.option("--quick", is_flag=True, help="Shorter faults, each on one datapath.")
@click.option("--seed", type=click.IntRange(0), default=1)
@click.option(
    "--datapath", type=click.Choice([KERNEL, NFQUEUE]),
    help="Datapath of the daemons. Default: both, or one for each fault with --quick.",
)  # fmt: skip
@click.option("--seconds", type=click.FloatRange(60), default=3600, help="Length of the soak.")
@click.option(
    "--fabric", type=click.Choice(list(FABRICS)), default=FABRIC, help="Fabric of the fleets."
)
@click.option(
    "--from", "earlier", metavar="REV",
    help="Revision that `upgrade` goes back to. Default: the first one of this wire version.",
)  # fmt: skip
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), default=Path("chaos-out"),
    help=f"Directory for {_RESULT}.",
)  # fmt: skip
@click.option(
    "--jobs", type=click.IntRange(1, 16),
    help=f"Number of fleets at a time. Default: {_JOBS[False]}, or {_JOBS[True]} with --quick.",
)  # fmt: skip
@click.option("--docs", is_flag=True, help="Write a full run, or a soak, into results/chaos.md.")
def main(
    *,
    names: tuple[str, ...],
    quick: bool,
    seed: int,
    datapath: str | None,
    seconds: float,
    fabric: str,
    earlier: str | None,
    out: Path,
    jobs: int | None,
    docs: bool,
) -> None:
    """Do each FAULT (default: all) to a fleet of real daemons under load. The exit status is 1 if a
    promise of results/faults.md is broken."""
    whole = names in ((), (SOAK,))
    if docs and (not whole or quick or datapath):
        raise click.UsageError(
            f"--docs is for all faults or {SOAK}, without --quick and --datapath"
        )
    links = probed("auto")
    work = [
        Job(list(group), way, links, seed, quick, seconds, fabric, earlier)
        for way, group in stages(names, datapath, quick)
    ]
    campaign = Campaign(work, jobs or _JOBS[quick], Board())
    began = time.monotonic()
    result: dict[str, Any] = {
        **head(quick=quick),
        "seed": seed,
        "fabric": fabric,
        "stages": campaign.stages,
    }
    try:
        run_to_end(campaign.carry_out)
    finally:
        # An interrupted run reports its results so far.
        result["seconds"] = round(time.monotonic() - began, 1)
        out.mkdir(parents=True, exist_ok=True)
        (out / _RESULT).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    click.echo(report.text(result))
    if docs:
        name = SOAK if names else fabric
        click.echo(f"{_PAGE.write({name: report.section(result, name.capitalize())})}")
    if report.broken(result):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
