"""The programs on their hooks: made for a set of limits, put in place as one, and kept there.

A hook can lose its program: the interface went and came back (a tunnel, a restarted VM), or
somebody took the program, a filter or a qdisc away by hand. `put_back_lost` finds out, and is to be
called when there is news of interfaces, and once a second or so.
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
from drld.ebpf.attachment import Attachment
from drld.ebpf.bpf import Code, Map, Program
from drld.ebpf.cleaning import cleaning_up
from drld.ebpf.hook import Device, Hook, device
from drld.errors import DatapathError
from drld.spec import LimitSpec

log = logging.getLogger(__name__)


class _Recipe(NamedTuple):
    """What programs of a hook are made of: equal recipes make equal programs."""

    device: Device
    tables: classifier.Tables
    handover_ids: str
    """Of the state."""


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
        """Touch nothing yet; the attachment is this object's to close."""
        self._attachment = attachment
        self._police = police
        self._seed = seed
        self._attached: dict[Hook, _Attached] = {}
        self._prepared: dict[Hook, _Attached] = {}
        """What hooks may have next."""
        self._lost: set[Hook] = set()
        """Hooks whose program could not be put back, which was logged."""
        self.in_force = False
        """`replace` has succeeded: until then programs of a dead daemon are not ours to remove."""

    def __str__(self) -> str:
        where = ", ".join(f"{hook.interface} {hook.direction.value}" for hook in self._attached)
        return f"({self._attachment.way}) on {where or 'no interface'}"

    def handover_ids(self) -> list[str]:
        """Which maps the programs have that a dead daemon of this name left."""
        return [found.handover_ids for found in self._attachment.found()]

    def replace(
        self,
        limits: Sequence[LimitSpec],
        slots: Mapping[int, int],
        state: State,
        old_handover_ids: str,
    ) -> None:
        """Have programs for these limits on their hooks and on no others; or those there were.

        The first time those are a dead daemon's. Where its program has been replaced by then the
        new one, which goes on with the same state, stays: a hook that was limited remains so.

        Args:
            limits: in the order of the configuration.
            slots: of the limits in `state`.
            state: the maps that the programs share.
            old_handover_ids: of the state of the programs that are there.

        Raises:
            DatapathError: no such interface (it says for which limits), more limits than the
                program has bounds for, or the kernel refuses.
        """
        made: dict[Hook, _Attached] = {}
        try:
            # What needs no kernel to be refused is refused before anything takes long.
            recipes = self._recipes(limits, slots, state)
            for hook, recipe in recipes.items():
                made[hook] = self._make(hook, recipe, state)
            self._install(made, state.handover_ids, old_handover_ids)
        except BaseException:
            _close(made, self._attached)
            self._discard_prepared()
            raise
        _close(self._attached, made)
        self._attached = made
        self.in_force = True
        self._discard_prepared()
        self._lost.clear()

    def preparation(
        self, limits: Sequence[LimitSpec], slots: Mapping[int, int], state: State
    ) -> Callable[[], None]:
        """What makes the programs that `replace` needs if nothing changes until then.

        It may run in a thread of its own: the kernel verifies a program for 0.1 s. What fails in
        it fails again in `replace`, which says so. One at a time.
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

    def put_back_lost(self, handover_ids: str) -> int:
        """Attach again what was lost; how many those were."""
        count = 0
        for hook, attached in self._attached.items():
            try:
                index = socket.if_nametoindex(hook.interface)
            except OSError:
                continue  # gone; nothing passes it
            try:
                if self._is_there(hook, index):
                    continue
                there = device(hook.interface)
                self._attachment.put(there.index, hook.direction, attached.program, handover_ids)
            except DatapathError as error:
                if hook not in self._lost:
                    log.error(
                        "%s: not limited: cannot attach the program again: %s; drld keeps trying",
                        *(hook.interface, error),
                    )
                self._lost.add(hook)
                continue
            new = index != attached.device.index
            attached.device = there
            self._lost.discard(hook)
            count += 1
            log.warning(
                "%s: attached again: %s",
                hook.interface,
                "a new interface" if new else f"the program was gone ({hook.direction.value})",
            )
        return count

    def close(self) -> None:
        """Remove every program of this limiter, as far as that is possible, once ours were there.

        Else those stay that a dead daemon left: they limit until one of its name can start.
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
        """Tables and program of a hook: those it has, or those that were prepared, if they fit."""
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
        """Close what was prepared and is not attached."""
        _close(self._prepared, self._attached)
        self._prepared = {}

    def _install(
        self, made: Mapping[Hook, _Attached], handover_ids: str, old_handover_ids: str
    ) -> None:
        """Put the new programs in the place of the old ones, or leave the old ones."""
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
        """Where programs of this limiter are, whoever put them there."""
        return {Hook(found.interface, found.direction) for found in self._attachment.found()}

    def _remove_others(self, wanted: Mapping[Hook, _Attached]) -> None:
        """Remove the programs of this limiter on any other hook."""
        for found in self._attachment.found():
            if Hook(found.interface, found.direction) not in wanted:
                self._attachment.remove(found.index, found.direction)


def _close(some: Mapping[Hook, _Attached], kept: Mapping[Hook, _Attached]) -> None:
    """Close those that are not kept."""
    for hook, attached in list(some.items()):
        if kept.get(hook) is not attached:
            attached.close()


def _hook_of(limit: LimitSpec) -> Hook:
    return Hook(limit.match.interface, limit.match.direction)
