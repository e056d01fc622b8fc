"""The planes: kinds of traffic. `PLANES` names each, and nothing else of drld does.

A plane is a package of its own. The modules of its subpackage `registered` add to drld's
configuration, `drlctl` and control API:

- `tables.TABLES`: its table, and its limits (`drld.config.plane_tables`);
- `remarks.remarks`: what is allowed in its limits, and better otherwise: takes a configuration, and
  returns a line each;
- `target_options.OPTIONS`: options of `drlctl limit` for its targets;
- `commands.COMMANDS`: commands of `drlctl`; `commands.show_keys`, for `drlctl limit top`: shows the
  busiest keys of a limit that has some;
- `explain`: how its items are written, and what limits do with one (`drld.planes.explanation`);
- `replay.Replay`: what limits would have done to a capture of its items (`drld.planes.replay`);
- `routes.routes`: paths of the control API, a function that makes them;
- `metrics.samples`: figures for `GET /metrics`: takes the backend, and returns samples;
- `panels.PANELS`: what the page shows of its limits (`drld.planes.panels`);
- `daemon.plane`: the plane in a daemon, with its tasks and servers (`drld.daemon.running_plane`);
- `doctor.findings`: findings of `drlctl doctor`, from what it knows (`drld.doctor.finding`);
- `public_routes.routes`: paths for other hosts too, which change nothing, likewise.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TypeVar

from drld.errors import InputError

T = TypeVar("T")

PLANES = ("drld.capture", "drld.requests", "drld.messages")


def registered(name: str) -> list[ModuleType]:
    """The modules of this name that planes register, in their order; a plane may have none."""
    return [*_modules(name, PLANES)]


@cache
def _modules(name: str, planes: tuple[str, ...]) -> tuple[ModuleType, ...]:
    """See `registered`; cached, because to look for a module takes longer than most calls of
    one."""
    names = [f"{plane}.registered.{name}" for plane in planes]
    return tuple(import_module(module) for module in names if find_spec(module))


def first_to_read(name: str, read: Callable[[ModuleType], T], having: str = "") -> T:
    """The result of the first registered module of this name that can read an item.

    `having` leaves out modules without this function.

    Raises:
        InputError: none can; the reason of each.
    """
    refused = []
    for module in registered(name):
        if having and not hasattr(module, having):
            continue
        try:
            return read(module)
        except InputError as error:
            refused.append(str(error))
    raise InputError("; ".join(refused))
