"""The programs of the kernel datapath. Hooks with the same limits share a loaded program."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from drld.capture import kernel_classifier as classifier
from drld.capture.kernel.state import State
from drld.capture.kernel.tables import hook_maps
from drld.ebpf.bpf import Code, Map, Program


class Recipe(NamedTuple):
    """The inputs of a program: equal recipes make equal programs, which hooks share."""

    link_bytes: int
    """Bytes of the link-layer header before the IP header."""
    tables: classifier.Tables
    handover_ids: str
    """The ids of the shared maps (`State.handover_ids`)."""


@dataclass(slots=True, eq=False)
class LoadedProgram:
    """A program in the kernel, and its tables."""

    recipe: Recipe
    program: Program
    maps: list[Map]

    def close(self) -> None:
        """Close the descriptors. The program ends unless a hook has it."""
        self.program.close()
        for each in self.maps:
            each.close()


def load(recipe: Recipe, name: str, code: Code, state: State) -> LoadedProgram:
    """Make the tables of a recipe, and load the program `code` with them and the maps of `state`.

    Raises:
        DatapathError: the kernel refuses.
    """
    maps = hook_maps(recipe.tables)
    try:
        program = Program.load(name, code, {**state.maps, **maps})
    except BaseException:
        for each in maps.values():
            each.close()
        raise
    return LoadedProgram(recipe, program, list(maps.values()))


def close_all(programs: Iterable[LoadedProgram], kept: Iterable[LoadedProgram]) -> None:
    """Close those of `programs` that are not in `kept`."""
    for loaded in set(programs) - set(kept):
        loaded.close()
