"""The programs on their hooks: made for a set of limits, installed together, and kept attached.

A hook can lose its program. The interface was removed and made again (a tunnel, a restarted VM), or
another process removed the program, its filter or its qdisc. `put_back_lost` attaches lost programs
again. It also follows the interfaces of patterns (`drld.capture.patterns`) as they come and go.
Call it after a change of interfaces, and about once a second. Hooks with the same limits share a
program, so a new container costs one system call.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from drld.capture.kernel.programs import LoadedProgram, Recipe, Recipes, close_all, load
from drld.capture.kernel.state import State
from drld.capture.kernel.wanted_hooks import Keys, WantedHooks, hook_of, keys_of
from drld.capture.patterns import is_pattern
from drld.config.problems import some
from drld.ebpf.attachment import Attachment
from drld.ebpf.bpf import Code
from drld.ebpf.cleaning import cleaning_up
from drld.ebpf.hook import Device, Hook, device, index_of
from drld.ebpf.other_limiters import OtherLimiters
from drld.errors import DatapathError, printable
from drld.log_event import event
from drld.police.direction import Direction
from drld.spec import LimitSpec

log = logging.getLogger(__name__)

_NO_INDEX = 0
"""The index of an interface that is gone."""


@dataclass(slots=True)
class _Attached:
    """A hook, and the program on it."""

    device: Device
    keys: Keys
    loaded: LoadedProgram


class Hooks:
    """The hooks of one limiter, each with an instance of `police`."""

    def __init__(self, attachment: Attachment, police: Code, seed: int) -> None:
        """Attach nothing yet; this object owns the attachment and closes it."""
        self._attachment = attachment
        self._police = police
        self._limits: Sequence[LimitSpec] = ()
        """The limits that the attached programs enforce."""
        self._named: Keys = ()
        """The names and patterns of these limits, each once."""
        self._wanted = WantedHooks()
        self._attached: dict[Hook, _Attached] = {}
        self._prepared: list[LoadedProgram] = []
        """Programs made in advance by `preparation`."""
        self._recipes = Recipes(seed)
        self._others = OtherLimiters()
        self._lost: set[Hook] = set()
        """Hooks with a logged failure to attach the program again."""
        self.preparing = False
        """Whether a function of `preparation` may run."""
        self.in_force = False
        """Whether `replace` has succeeded. Before that, a dead daemon's programs must stay."""

    def __str__(self) -> str:
        where = [f"{printable(it.interface)} {it.direction.value}" for it in self._attached]
        return f"({self._attachment.way}) on {some(where) or 'no interface'}"

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
        try:
            # Mistakes that need no kernel to find are reported before the slow part.
            recipes = self._recipes_of_hooks(limits, slots, state)
            self._exchange(recipes, state, old_handover_ids, ready)
        except BaseException:
            self._discard_prepared()
            raise
        self._limits = limits
        self._named = keys_of(limits)
        self._recipes.retain((keys, there.link_bytes) for there, keys, _ in recipes.values())
        self.in_force = True
        self._discard_prepared()
        self._lost.clear()
        with cleaning_up():
            self._others.log(
                (hook.interface, hook.direction, other)
                for hook, each in self._attached.items()
                for other in self._attachment.others(each.device.index, hook.direction)
            )

    def move(
        self,
        slots: Mapping[int, int],
        state: State,
        old_handover_ids: str,
        ready: Callable[[], None],
    ) -> None:
        """Attach the same programs around another state; see `replace`."""
        recipes: dict[Hook, tuple[Device, Keys, Recipe]] = {}
        for hook, each in self._attached.items():
            own = [limit for limit in self._limits if hook_of(limit) in each.keys]
            there = each.device
            if index_of(hook.interface) != there.index:
                there = replace(there, index=_NO_INDEX)  # it may come back with an old program
            recipe = self._recipes.of(each.keys, there.link_bytes, own, slots, state)
            recipes[hook] = there, each.keys, recipe
        self._exchange(recipes, state, old_handover_ids, ready)

    def indices(self) -> set[int]:
        """The indices of the interfaces with a program."""
        return {each.device.index for each in self._attached.values()}

    def preparation(
        self, limits: Sequence[LimitSpec], slots: Mapping[int, int], state: State
    ) -> Callable[[], None]:
        """A function that makes the programs for a `replace` with the same arguments.

        It may run in another thread, as the kernel takes 0.1 s to verify a program, and the tables
        of thousands of limits take as long. Its failures are ignored, as `replace` repeats and
        reports them. Only one may run at a time.
        """
        self._discard_prepared()
        try:
            hooks, refusals = self._limits_of_hooks(limits)
        except DatapathError as error:
            hooks, refusals = {}, [error]
        attached = _programs(self._attached)

        def prepare() -> None:
            try:
                recipes = [
                    self._recipes.of(keys, there.link_bytes, own, slots, state)
                    for there, keys, own in hooks.values()
                ]
                for recipe in recipes:
                    if all(each.recipe != recipe for each in (*attached, *self._prepared)):
                        self._prepared.append(self._load(recipe, state))
            except DatapathError:
                pass
            finally:
                self.preparing = False

        self.preparing = not refusals
        return prepare if self.preparing else (lambda: None)

    def put_back_lost(self, state: State, *, news: bool) -> int:
        """Attach lost programs again, and follow patterns; return the number of lost ones.

        Args:
            state: the maps that the programs share.
            news: whether interfaces may have changed since the last call.
        """
        count = 0
        former: set[tuple[int, Direction]] = set()
        """Hooks of devices that no longer have the name of a limit's interface."""
        if news or self._lost:
            self._follow(state, former)
        for hook, attached in list(self._attached.items()):
            index = index_of(hook.interface)
            if index is None:
                continue  # the interface is gone, and no packet passes it
            try:
                if self._is_there(hook, index):
                    continue
                former_index = attached.device.index
                self._attach(hook, attached.keys, state)
            except DatapathError as error:
                self._log_lost(hook, error)
                continue
            new = index != former_index
            if new:
                former.add((former_index, hook.direction))
            self._lost.discard(hook)
            if new and hook not in self._named:
                continue  # another container's interface of the same name
            count += 1
            cause = "a new interface" if new else f"the program was gone ({hook.direction.value})"
            again = event(
                "interface.reattached", hook.interface, interface=hook.interface, reason=cause
            )
            log.warning("%s: attached again: %s", hook.interface, cause, extra=again)
        # A device that was renamed lives on, with the program.
        current = {(each.device.index, hook.direction) for hook, each in self._attached.items()}
        for former_index, direction in former - current:
            with cleaning_up():
                self._attachment.remove(former_index, direction)
        return count

    def _log_lost(self, hook: Hook, error: DatapathError) -> None:
        if not is_pattern(hook.interface) and index_of(hook.interface) is None:
            return  # the interface is gone again, and no packet passes it
        if hook not in self._lost:
            log.error(
                "%s: not limited: cannot attach the program: %s; drld keeps trying",
                *(hook.interface, error),
                extra=event(
                    "interface.unlimited",
                    hook.interface,
                    **{"interface": hook.interface, "reason": str(error)},
                ),
            )
        self._lost.add(hook)

    def _follow(self, state: State, former: set[tuple[int, Direction]]) -> None:
        """Attach to new interfaces of patterns, and forget those that are gone."""
        patterns = [key for key in self._named if is_pattern(key.interface)]
        if not patterns:
            return
        try:
            wanted = self._wanted.of(self._named)
        except DatapathError as error:  # perhaps no descriptor is free: the next call tries again
            self._log_lost(patterns[0], error)
            return
        self._lost -= set(patterns)
        for hook, keys in wanted.items():
            if hook in self._attached and (
                self._attached[hook].keys == keys or index_of(hook.interface) is None
            ):
                continue
            try:
                self._attach(hook, keys, state)
            except DatapathError as error:
                self._log_lost(hook, error)
        gone = [hook for hook in self._attached if hook not in wanted]
        for hook in gone:
            attached = self._attached.pop(hook)
            former.add((attached.device.index, hook.direction))
            self._lost.discard(hook)
            close_all([attached.loaded], _programs(self._attached))

    def _attach(self, hook: Hook, keys: Keys, state: State) -> None:
        """Attach the program for these limits to the interface that has the hook's name now."""
        there = device(hook.interface)
        alike = (
            each.loaded
            for each in self._attached.values()
            if each.keys == keys and each.loaded.recipe.link_bytes == there.link_bytes
        )
        loaded = next(alike, None)
        if loaded is None:  # a program's limits and offsets are fixed
            own = [limit for limit in self._limits if hook_of(limit) in keys]
            recipe = self._recipes.of(keys, there.link_bytes, own, state.slots(), state)
            loaded = self._made(recipe, ()) or self._load(recipe, state)
        before = _programs(self._attached)
        try:
            self._attachment.put(there.index, hook.direction, loaded.program, state.handover_ids)
        except BaseException:
            close_all([loaded], before)
            raise
        self._attached[hook] = _Attached(there, keys, loaded)
        close_all(before, _programs(self._attached))

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
        close_all(_programs(self._attached), ())
        self._attached = {}
        self._discard_prepared()

    def _is_there(self, hook: Hook, index: int) -> bool:
        return index == self._attached[hook].device.index and self._attachment.has(
            index, hook.direction
        )

    def _made(self, recipe: Recipe, new: Iterable[_Attached]) -> LoadedProgram | None:
        """A program of this recipe, if there is one already: a new, attached or prepared one."""
        there = [*(each.loaded for each in new), *_programs(self._attached), *self._prepared]
        return next((each for each in there if each.recipe == recipe), None)

    def _recipes_of_hooks(
        self, limits: Sequence[LimitSpec], slots: Mapping[int, int], state: State
    ) -> dict[Hook, tuple[Device, Keys, Recipe]]:
        hooks, refusals = self._limits_of_hooks(limits)
        recipes: dict[Hook, tuple[Device, Keys, Recipe]] = {}
        for hook, (there, keys, own) in hooks.items():
            try:
                recipe = self._recipes.of(keys, there.link_bytes, own, slots, state)
                recipes[hook] = there, keys, recipe
            except DatapathError as error:
                refusals.append(error)
        if refusals:
            named = {limit: why for each in refusals for limit, why in each.limits.items()}
            raise DatapathError(str(refusals[0]), named) from refusals[0]
        return recipes

    def _limits_of_hooks(
        self, limits: Sequence[LimitSpec]
    ) -> tuple[dict[Hook, tuple[Device, Keys, Sequence[LimitSpec]]], list[DatapathError]]:
        """The interface and the limits of each hook, and the refusals of missing interfaces."""
        groups: dict[Hook, list[tuple[int, LimitSpec]]] = {}
        for position, limit in enumerate(limits):
            groups.setdefault(hook_of(limit), []).append((position, limit))
        hooks: dict[Hook, tuple[Device, Keys, Sequence[LimitSpec]]] = {}
        owned: dict[Keys, Sequence[LimitSpec]] = {}
        refusals: list[DatapathError] = []
        for hook, keys in self._wanted.of(tuple(groups)).items():
            if keys not in owned:
                placed = sorted((it for key in keys for it in groups[key]), key=lambda it: it[0])
                owned[keys] = [limit for _, limit in placed]
            try:
                hooks[hook] = _device(hook, owned[keys]), keys, owned[keys]
            except DatapathError as error:
                if hook in groups:
                    refusals.append(error)
                # else `put_back_lost` tries again, and says why it fails
        return hooks, refusals

    def _load(self, recipe: Recipe, state: State) -> LoadedProgram:
        name = self._attachment.program_name("police")
        return load(recipe, name, self._police, state)

    def _discard_prepared(self) -> None:
        """Close prepared programs that are not attached."""
        close_all(self._prepared, _programs(self._attached))
        self._prepared = []
        self.preparing = False

    def _exchange(
        self,
        recipes: Mapping[Hook, tuple[Device, Keys, Recipe]],
        state: State,
        old_handover_ids: str,
        ready: Callable[[], None],
    ) -> None:
        """Attach programs of these recipes instead of the old ones, which stay on failure."""
        made: dict[Hook, _Attached] = {}
        try:
            for hook, (there, keys, recipe) in recipes.items():
                loaded = self._made(recipe, made.values()) or self._load(recipe, state)
                made[hook] = _Attached(there, keys, loaded)
            ready()
            self._install(made, state.handover_ids, old_handover_ids)
        except BaseException:
            close_all(_programs(made), _programs(self._attached))
            raise
        close_all(_programs(self._attached), _programs(made))
        self._attached = made

    def _install(
        self, made: Mapping[Hook, _Attached], handover_ids: str, old_handover_ids: str
    ) -> None:
        """Replace the old programs by the new ones; on failure the old ones stay."""
        left = set() if self.in_force else self._found()
        done: list[Hook] = []
        try:
            for hook, attached in made.items():
                if attached.device.index == _NO_INDEX:
                    continue
                done.append(hook)
                index = attached.device.index
                try:
                    self._attachment.put(
                        index, hook.direction, attached.loaded.program, handover_ids
                    )
                except DatapathError:
                    if index_of(hook.interface) == index:
                        raise
                    # It went meanwhile. If it comes back, `put_back_lost` attaches the program.
                    attached.device = replace(attached.device, index=_NO_INDEX)
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
                    old.device.index, hook.direction, old.loaded.program, old_handover_ids
                )

    def _found(self) -> set[Hook]:
        """All hooks with a program of this limiter, from this daemon or an earlier one."""
        return {Hook(found.interface, found.direction) for found in self._attachment.found()}

    def _remove_others(self, wanted: Mapping[Hook, _Attached]) -> None:
        """Remove the programs of this limiter on any other hook."""
        for found in self._attachment.found():
            if Hook(found.interface, found.direction) not in wanted:
                self._attachment.remove(found.index, found.direction)


def _device(hook: Hook, own: Sequence[LimitSpec]) -> Device:
    """The interface of a hook.

    Raises:
        DatapathError: it is missing, or has an unknown link layer; the error names the limits.
    """
    try:
        return device(hook.interface)
    except DatapathError as error:
        raise DatapathError(
            f"limit {own[0].name}: match.{hook.direction.value}: {error}",
            {limit.id: str(error) for limit in own},
        ) from error


def _programs(attached: Mapping[Hook, _Attached]) -> list[LoadedProgram]:
    """The programs of these hooks, each once."""
    return list(dict.fromkeys(each.loaded for each in attached.values()))
