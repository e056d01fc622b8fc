"""The programs on their hooks: made for a set of limits, installed together, and kept attached.

A hook can lose its program: the interface was removed and made again (a tunnel, a restarted VM), or
another program removed ours, its filter or its qdisc. `put_back_lost` attaches lost programs again.
Call it after a change of interfaces, and about once a second.
"""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from drld.capture import kernel_classifier as classifier
from drld.capture.kernel.state import State
from drld.capture.kernel.tables import hook_maps
from drld.capture.spec import match_of
from drld.ebpf.attachment import Attachment
from drld.ebpf.bpf import Code, Map, Program
from drld.ebpf.cleaning import cleaning_up
from drld.ebpf.hook import Device, Hook, device
from drld.errors import DatapathError
from drld.police.direction import Direction
from drld.spec import LimitSpec

log = logging.getLogger(__name__)


class _Recipe(NamedTuple):
    """The inputs of a hook's program: equal recipes make equal programs."""

    device: Device
    tables: classifier.Tables
    handover_ids: str
    """`State.handover_ids`."""


@dataclass(slots=True)
class _Attached:
    """A hook's program and its tables."""

    recipe: _Recipe
    device: Device
    program: Program
    maps: list[Map]

    def close(self) -> None:
        self.program.close()
        for each in self.maps:
            each.close()


class Hooks:
    """The hooks of one limiter, each with an instance of `police`."""

    def __init__(self, attachment: Attachment, police: Code, seed: int) -> None:
        """Touch nothing yet; this object owns the attachment and closes it."""
        self._attachment = attachment
        self._police = police
        self._seed = seed
        self._limits: Sequence[LimitSpec] = ()
        """The limits that the attached programs enforce."""
        self._attached: dict[Hook, _Attached] = {}
        self._prepared: dict[Hook, _Attached] = {}
        """Programs made in advance by `preparation`."""
        self._lost: set[Hook] = set()
        """Hooks with a logged failure to attach the program again."""
        self.in_force = False
        """Whether `replace` has succeeded. Before that, a dead daemon's programs must stay."""

    def __str__(self) -> str:
        where = ", ".join(f"{hook.interface} {hook.direction.value}" for hook in self._attached)
        return f"({self._attachment.way}) on {where or 'no interface'}"

    def handover_ids(self) -> list[str]:
        """The `handover_ids` of each program that a dead daemon of this name left."""
        return [found.handover_ids for found in self._attachment.found()]

    def replace(
        self,
        limits: Sequence[LimitSpec],
        slots: Mapping[int, int],
        state: State,
        old_handover_ids: str,
        ready: Callable[[], None],
    ) -> None:
        """Attach programs for these limits to their hooks, and remove all others.

        On failure the old programs stay. They may be a dead daemon's. A hook where the new program
        has replaced a dead daemon's keeps the new one: it uses the same state, so the hook stays
        limited.

        Args:
            limits: the limits, in the order of the configuration.
            slots: the limits' slots in `state`.
            state: the maps that the programs share.
            old_handover_ids: `State.handover_ids` of the old programs.
            ready: fills `state`; called once all programs are made, which is the slow part.

        Raises:
            DatapathError: an interface is missing (the error names its limits), the limits exceed
                a bound of the program, or the kernel refuses.
        """
        made: dict[Hook, _Attached] = {}
        try:
            # Mistakes that need no kernel to find are reported before the slow part.
            recipes = self._recipes(limits, slots, state)
            for hook, recipe in recipes.items():
                made[hook] = self._make(hook, recipe, state)
            ready()
            self._install(made, state.handover_ids, old_handover_ids)
        except BaseException:
            _close(made, self._attached)
            self._discard_prepared()
            raise
        _close(self._attached, made)
        self._limits = limits
        self._attached = made
        self.in_force = True
        self._discard_prepared()
        self._lost.clear()

    def preparation(
        self, limits: Sequence[LimitSpec], slots: Mapping[int, int], state: State
    ) -> Callable[[], None]:
        """A function that makes the programs for a `replace` with the same arguments.

        It may run in another thread, as the kernel takes 0.1 s to verify a program. Its failures
        are ignored, as `replace` repeats and reports them. Only one may run at a time.
        """
        self._discard_prepared()
        recipes: dict[Hook, _Recipe] = {}
        with contextlib.suppress(DatapathError):
            for hook, recipe in self._recipes(limits, slots, state).items():
                if hook not in self._attached or self._attached[hook].recipe != recipe:
                    recipes[hook] = recipe

        def prepare() -> None:
            with contextlib.suppress(DatapathError):
                for hook, recipe in recipes.items():
                    self._prepared[hook] = self._load(recipe, state)

        return prepare

    def put_back_lost(self, state: State) -> int:
        """Attach lost programs again; return their number."""
        count = 0
        former: set[tuple[int, Direction]] = set()
        """Hooks of devices that no longer have the name of a limit's interface."""
        for hook, attached in self._attached.items():
            try:
                index = socket.if_nametoindex(hook.interface)
            except OSError:
                continue  # the interface is gone, and no packet passes it
            try:
                if self._is_there(hook, index):
                    continue
                former_index = attached.device.index
                self._put_back(hook, state)
            except DatapathError as error:
                if hook not in self._lost:
                    log.error(
                        "%s: not limited: cannot attach the program again: %s; drld keeps trying",
                        *(hook.interface, error),
                    )
                self._lost.add(hook)
                continue
            new = index != former_index
            if new:
                former.add((former_index, hook.direction))
            self._lost.discard(hook)
            count += 1
            log.warning(
                "%s: attached again: %s",
                hook.interface,
                "a new interface" if new else f"the program was gone ({hook.direction.value})",
            )
        # A device that was renamed lives on, with the program.
        current = {(each.device.index, hook.direction) for hook, each in self._attached.items()}
        for former_index, direction in former - current:
            with cleaning_up():
                self._attachment.remove(former_index, direction)
        return count

    def _put_back(self, hook: Hook, state: State) -> None:
        """Attach a hook's program to the interface that has its name now."""
        there = device(hook.interface)
        old = new = self._attached[hook]
        if there.link_bytes != old.device.link_bytes:  # a program's offsets are fixed
            new = self._load(self._recipe(hook, self._limits, state.slots(), state), state)
            there = new.device
        try:
            self._attachment.put(there.index, hook.direction, new.program, state.handover_ids)
        except BaseException:
            if new is not old:
                new.close()
            raise
        new.device = there
        self._attached[hook] = new
        if new is not old:
            old.close()

    def close(self) -> None:
        """Remove every program of this limiter, as far as possible.

        If `replace` never succeeded, a dead daemon's programs stay. They limit until the next
        daemon of the same name starts.
        """
        for hook, attached in self._attached.items():
            with cleaning_up():
                self._attachment.remove(attached.device.index, hook.direction)
        if self.in_force:
            with cleaning_up():
                self._remove_others({})
        self._attachment.close()
        for attached in self._attached.values():
            attached.close()
        self._attached = {}
        self._discard_prepared()

    def _is_there(self, hook: Hook, index: int) -> bool:
        return index == self._attached[hook].device.index and self._attachment.has(
            index, hook.direction
        )

    def _make(self, hook: Hook, recipe: _Recipe, state: State) -> _Attached:
        """A hook's tables and program: the attached or prepared ones if equal, else new ones."""
        for there in (self._attached, self._prepared):
            if hook in there and there[hook].recipe == recipe:
                return there[hook]
        return self._load(recipe, state)

    def _recipes(
        self, limits: Sequence[LimitSpec], slots: Mapping[int, int], state: State
    ) -> dict[Hook, _Recipe]:
        recipes: dict[Hook, _Recipe] = {}
        refusals: list[DatapathError] = []
        for hook in dict.fromkeys(map(_hook_of, limits)):
            try:
                recipes[hook] = self._recipe(hook, limits, slots, state)
            except DatapathError as error:
                refusals.append(error)
        if refusals:
            named = {limit: why for each in refusals for limit, why in each.limits.items()}
            raise DatapathError(str(refusals[0]), named) from refusals[0]
        return recipes

    def _recipe(
        self, hook: Hook, limits: Sequence[LimitSpec], slots: Mapping[int, int], state: State
    ) -> _Recipe:
        own = [limit for limit in limits if _hook_of(limit) == hook]
        try:
            there = device(hook.interface)
        except DatapathError as error:
            raise DatapathError(
                f"limit {own[0].name}: match.{hook.direction.value}: {error}",
                {limit.id: str(error) for limit in own},
            ) from error
        tables = classifier.tables(own, slots, state.cpus, there.link_bytes, self._seed)
        return _Recipe(there, tables, state.handover_ids)

    def _load(self, recipe: _Recipe, state: State) -> _Attached:
        maps = hook_maps(recipe.tables)
        try:
            program = Program.load(
                self._attachment.program_name("police"), self._police, {**state.maps, **maps}
            )
        except BaseException:
            for each in maps.values():
                each.close()
            raise
        return _Attached(recipe, recipe.device, program, list(maps.values()))

    def _discard_prepared(self) -> None:
        """Close prepared programs that are not attached."""
        _close(self._prepared, self._attached)
        self._prepared = {}

    def _install(
        self, made: Mapping[Hook, _Attached], handover_ids: str, old_handover_ids: str
    ) -> None:
        """Replace the old programs by the new ones; on failure the old ones stay."""
        left = set() if self.in_force else self._found()
        done: list[Hook] = []
        try:
            for hook, attached in made.items():
                done.append(hook)
                self._attachment.put(
                    attached.device.index, hook.direction, attached.program, handover_ids
                )
            self._remove_others(made)
        except DatapathError:
            for hook in done:
                if hook not in left:
                    self._restore(hook, made[hook], old_handover_ids)
            raise

    def _restore(self, hook: Hook, new: _Attached, old_handover_ids: str) -> None:
        old = self._attached.get(hook)
        with cleaning_up():
            if old is None:
                self._attachment.remove(new.device.index, hook.direction)
            else:
                self._attachment.put(
                    old.device.index, hook.direction, old.program, old_handover_ids
                )

    def _found(self) -> set[Hook]:
        """All hooks with a program of this limiter, from this daemon or an earlier one."""
        return {Hook(found.interface, found.direction) for found in self._attachment.found()}

    def _remove_others(self, wanted: Mapping[Hook, _Attached]) -> None:
        """Remove the programs of this limiter on any other hook."""
        for found in self._attachment.found():
            if Hook(found.interface, found.direction) not in wanted:
                self._attachment.remove(found.index, found.direction)


def _close(some: Mapping[Hook, _Attached], kept: Mapping[Hook, _Attached]) -> None:
    """Close the programs of `some` that are not in `kept`."""
    for hook, attached in list(some.items()):
        if kept.get(hook) is not attached:
            attached.close()


def _hook_of(limit: LimitSpec) -> Hook:
    match = match_of(limit)
    return Hook(match.interface, match.direction)
