"""The planes: kinds of traffic. `PLANES` names each, and nothing else of drld does.

A plane is a package of its own. The modules of its subpackage `registered` add to drld's
configuration, daemon, `drlctl` and control API. A plane may leave out all but the first:

- `tables.TABLES`: the plane's table, and the table of its limits (`drld.config.plane_tables`);
- `remarks.remarks`: remarks on valid limits that could be better; takes a configuration, and
  returns a line each;
- `target_options.OPTIONS`: options of `drlctl limit` for the plane's targets; `WORDS`: what a shell
  completes as values of keys;
- `commands.COMMANDS`: commands of `drlctl`; `commands.show_keys` shows the busiest keys of a limit
  that has keys, for `drlctl limit top`;
- `explain`: the notation of the plane's items, and their treatment by limits
  (`drld.planes.explanation`);
- `replay.Replay`: the treatment of a capture of items by limits (`drld.planes.replay`);
- `routes.routes`: a function that makes paths of the control API;
- `public_routes.routes`: a function that makes paths for other hosts, which change nothing;
- `metrics.samples`: figures for `GET /metrics`; takes the backend, and returns samples;
- `panels.PANELS`: charts of the page (`drld.planes.panels`);
- `daemon.plane`: the plane in a daemon, with its tasks and servers (`drld.daemon.running_plane`);
- `daemon.remarks`: as `remarks.remarks`, on what a configuration needs of the host;
- `doctor.findings`: findings of `drlctl doctor`, from its facts (`drld.doctor.finding`).
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
        InputError: no module can. The error has the reason of each; if all reasons say what the
            item must be, they are one claim.
    """
    refused = []
    for module in registered(name):
        if having and not hasattr(module, having):
            continue
        try:
            return read(module)
        except InputError as error:
            refused.append(str(error))
    must = "must be "
    if all(reason.startswith(must) for reason in refused):
        raise InputError(must + ", or ".join(reason.removeprefix(must) for reason in refused))
    raise InputError("; ".join(refused))
