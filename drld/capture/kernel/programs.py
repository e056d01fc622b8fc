"""The programs of the kernel datapath. Hooks with the same limits share a loaded program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from drld.capture import kernel_classifier as classifier
from drld.capture.kernel.state import State
from drld.capture.kernel.tables import hook_maps
from drld.capture.kernel.wanted_hooks import Keys
from drld.ebpf.bpf import Code, Map, Program
from drld.spec import LimitSpec


class Recipe(NamedTuple):
    """The inputs of a program: equal recipes make equal programs, which hooks share."""

    link_bytes: int
    """The length of the link-layer header before the IP header, bytes."""
    tables: classifier.Tables
    handover_ids: str
    """The ids of the shared maps (`State.handover_ids`)."""


class Recipes:
    """Makes recipes, and remembers their tables: most changes of limits leave tables as they are.

    Those of thousands of limits take 0.1 s.
    """

    def __init__(self, seed: int) -> None:
        """Begin without recipes. `seed` is the seed of the identities of flows
        (`drld.capture.flow_identity`)."""
        self._seed = seed
        self._made: dict[tuple[Keys, int], tuple[list[object], classifier.Tables]] = {}
        """The last tables for these keys and `link_bytes`, and the settings in them."""

    def of(
        self,
        keys: Keys,
        link_bytes: int,
        limits: Sequence[LimitSpec],
        slots: Mapping[int, int],
        state: State,
    ) -> Recipe:
        """Return the recipe for the limits of these keys.

        Raises:
            DatapathError: the limits exceed a bound of the program.
        """
        settings: list[object] = [
            (slots[limit.id], limit.match, limit.policy.flow is None) for limit in limits
        ]
        made_of, tables = self._made.get((keys, link_bytes), (None, None))
        if tables is None or made_of != settings:
            tables = classifier.tables(limits, slots, state.cpus, link_bytes, self._seed)
            self._made[keys, link_bytes] = settings, tables
        return Recipe(link_bytes, tables, state.handover_ids)

    def retain(self, sorts: Iterable[tuple[Keys, int]]) -> None:
        """Forget the tables for all other keys and `link_bytes`."""
        self._made = {sort: self._made[sort] for sort in {*sorts}}


@dataclass(slots=True, eq=False)
class LoadedProgram:
    """A program in the kernel, and its tables."""

    recipe: Recipe
    program: Program
    maps: list[Map]

    def close(self) -> None:
        """Close the descriptors. The kernel frees the program unless a hook has it."""
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
