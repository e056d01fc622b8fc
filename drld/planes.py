"""The planes: kinds of traffic, a line each. Nothing else names one, but the daemon that runs them.

A plane is a package of its own. The modules of its subpackage `registered` add to drld's
configuration, `drlctl` and control API:

- `tables.TABLES`: its table, and its limits (`drld.config.plane_tables`);
- `remarks.remarks`: what is allowed in its limits, and better otherwise: takes a configuration, and
  returns a line each;
- `target_options.OPTIONS`: options of `drlctl limit` for its targets;
- `commands.COMMANDS`: commands of `drlctl`;
- `routes.routes`: paths of the control API, a function that makes them;
- `doctor.findings`: findings of `drlctl doctor`, from what it knows (`drld.doctor.finding`).
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

PLANES = ("drld.capture",)


def registered(name: str) -> list[ModuleType]:
    """The modules of this name that planes register, in their order; a plane may have none."""
    names = [f"{plane}.registered.{name}" for plane in PLANES]
    return [import_module(module) for module in names if find_spec(module)]
