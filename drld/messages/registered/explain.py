"""The explanation of a message: the limits that it meets, and the present verdict of each.

Nothing is charged or counted: each limit tries the message on a copy of its bucket.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from drld.errors import InputError
from drld.messages.frame import Client, kept
from drld.messages.gate import Lane
from drld.messages.spec import ITEM, Excess, MessageMatch
from drld.messages.topics import Notation, Topics, check
from drld.model import NS_PER_S, Enforcement
from drld.planes.explanation import Explanation, Words, row, tried
from drld.police.policer import Policer
from drld.policy import Mode
from drld.spec import LimitSpec
from drld.units import human_duration

WORDS = Words("message", MessageMatch.flow, "forwarded", "dropped", "drops")
_NAMES = ("broker", "topic", "client", "user", "address")


class Asked(NamedTuple):
    """A message that a text describes."""

    broker: str
    topic: str
    client: str = ""
    """The identifier of the client that publishes it."""
    user: str = ""
    """The client's user name."""
    address: str = ""
    """The client's address."""

    def __str__(self) -> str:
        values = zip(_NAMES, self, strict=True)
        return " ".join(shlex.quote(f"{name}={value}") for name, value in values if value)

    @property
    def lane(self) -> Lane:
        """A connection of its client."""
        lane = Lane(self.broker, None, self.address, 0)
        if self.client or self.user:
            lane.client = Client(kept(self.client), kept(self.user) or None, 0, 0)
        return lane


def is_meant(_: str) -> bool:
    """Whether a text is to be a message: each that is neither a packet nor a request."""
    return True


def read(text: str) -> Asked:
    """The message of words such as `broker=mqtt topic=city/traffic client=sensor1`.

    Raises:
        InputError: the words do not describe a message.
    """
    allowed = "a message must be broker=NAME topic=TOPIC, and may have client=, user= and address="
    try:
        pairs = [word.partition("=") for word in shlex.split(text)]
    except ValueError:
        raise InputError(allowed) from None
    given = {name: value for name, equals, value in pairs if equals}
    if len(given) < len(pairs) or given.keys() - {*_NAMES}:
        raise InputError(allowed)
    if not given.get("broker") or not given.get("topic"):
        raise InputError(allowed)
    return Asked(**given)


def remarks(item: Asked) -> list[str]:
    """Remarks on a description of a message."""
    if not (item.client or item.user or item.address):
        return ["The message names no client, so it is judged like one of a new client."]
    return []


class Explainer:
    """A set of limits; it explains those on messages."""

    def __init__(self, limits: Iterable[LimitSpec], *, misses: bool = True) -> None:
        """Prepare to explain messages.

        Args:
            limits: all limits in the order of the configuration; those of other planes are skipped.
            misses: whether limits that a message does not fall under are explained, too.
        """
        self._limits = [
            (limit, limit.match) for limit in limits if isinstance(limit.match, MessageMatch)
        ]
        self._misses = misses

    def explain(
        self,
        asked: Asked,
        policing: Callable[[LimitSpec, Lane], tuple[Policer, Enforcement]],
        now_ns: int,
    ) -> Iterator[Explanation]:
        """The verdict of each limit on a message, in the order in which it comes to them.

        Args:
            asked: the message.
            policing: a limit's present bucket, to try the message on, and the record in force;
                raises KeyError if the limit is gone.
            now_ns: the time, ns.
        """
        dropped = None
        for limit, match in self._limits:
            if (misses := first_miss(match, asked)) is not None:
                if self._misses:
                    yield row(limit, misses=misses)
            elif dropped is not None:
                yield row(limit, reason=f"not checked: {dropped} drops the message")
            else:
                try:
                    trial = policing(limit, asked.lane)
                except KeyError:
                    continue  # A reload has removed the limit.
                found = _tried(limit, trial, now_ns)
                if found["verdict"] == "drop":
                    dropped = limit.name
                yield found


def _tried(limit: LimitSpec, trial: tuple[Policer, Enforcement], now_ns: int) -> Explanation:
    policer, record = trial
    policy = limit.policy
    if policy.keyed is not None:
        # The engine has no record of each client's bucket.
        record = Enforcement(fill_rate=policy.rate, depth=policer.bucket.depth)
    wait_ns = policer.wait_ns(0, ITEM, now_ns)
    found = tried(limit, (policer, record), 0, ITEM, now_ns, words=WORDS)
    if policy.excess is Excess.WAIT and policy.mode is not Mode.PAUSE and wait_ns != 0:
        after = "for ever" if wait_ns is None else f"for {human_duration(wait_ns / NS_PER_S)}"
        shadow = policy.mode is Mode.SHADOW
        held = found["reason"].removeprefix("shadow mode; it would be dropped: ")
        found["reason"] = (
            f"{'shadow mode; it would wait' if shadow else 'it waits'} {after}: {held}"
        )
        found["verdict"] = "forward" if shadow else "wait"
    return found


def first_miss(match: MessageMatch, asked: Asked) -> str | None:
    """The first criterion of a limit that a message fails, and the reason; None: it fails none."""
    if asked.broker not in match.broker:
        return f"broker: {asked.broker} is not {' or '.join(match.broker)}"
    if not _matches(match, asked.topic):
        return f"topic: {asked.topic} does not match {match.topic}"
    return None


def _matches(match: MessageMatch, topic: str) -> bool:
    """Whether a filter matches. Both notations are tried if the protocol is not known here."""
    for notation in Notation if match.notation is None else (match.notation,):
        try:
            check(match.topic, notation)
        except ValueError:
            continue
        if Topics([(match.topic, True)], notation).search(topic):
            return True
    return False
