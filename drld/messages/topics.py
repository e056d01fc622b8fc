"""The limits that a topic falls under: topic filters in the notations of MQTT and NATS, in a trie.

MQTT (version 5, section 4.7): levels between slashes, `+` is any one level, and `#`, at the end,
any number of levels, none included. A filter that begins with a wildcard matches no topic that
begins with `$`. NATS: tokens between dots, `*` is any one token, and `>`, at the end, one or more.

The trie has a node for each distinct prefix of the filters. A search visits the prefixes that the
topic matches, so its cost does not grow with the number of other filters.

Most messages have a topic that has come before. A codec finds it in its `TopicCache` by the bytes,
and the `Topic` has the values that were found for it last. So such a message costs one lookup.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

T = TypeVar("T")

MAX_LEVELS = 32
"""The most levels of a filter."""
MAX_FILTER = 1024
"""The most characters of a filter."""
MAX_CACHED = 16_384
"""The default number of topics in a cache, some 4 MB: with fewer, 10,000 topics would often miss
it."""
_LONGEST_CACHED = 256
"""The most bytes of a topic in a cache: strangers choose topics, and so the memory for them."""


class Notation(enum.Enum):
    """A protocol's separator of levels, and its wildcards for one level and for all that follow."""

    MQTT = ("/", "+", "#")
    NATS = (".", "*", ">")


class Topic:
    """The topic of a message, with the values that a trie has found for it last.

    The text is an attribute: those of a subclass of `str` would lie in further lines of memory.
    """

    __slots__ = ("first", "found_in", "others", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.found_in: object = None
        """The `Topics.identity` of this trie; None: there are no values yet."""
        self.first: Any = None
        """The first value; None: there is none."""
        self.others: tuple[Any, ...] = ()
        """The values behind the first one."""

    def __eq__(self, other: object) -> bool:
        """Whether both have the same text."""
        return isinstance(other, Topic) and self.text == other.text

    def __hash__(self) -> int:
        """The hash of the text."""
        return hash(self.text)


class TopicCache(dict[bytes, Topic]):
    """The topics of recent messages by their bytes."""

    __slots__ = ("_decode", "_most")

    def __init__(self, decode: Callable[[bytes], str], most: int = MAX_CACHED) -> None:
        """Begin without topics.

        Args:
            decode: decodes a topic; its errors pass.
            most: the number of topics.
        """
        super().__init__()
        self._decode = decode
        self._most = most

    def __missing__(self, raw: bytes) -> Topic:
        """Decode a topic that is not here, and keep it."""
        topic = Topic(self._decode(raw))
        if len(raw) <= _LONGEST_CACHED:
            if len(self) >= self._most:
                # All at once: to find the least used would cost time at each message.
                self.clear()
            self[raw] = topic
        return topic


class _Node(Generic[T]):
    """The continuations of a prefix of filters."""

    __slots__ = ("any", "ends", "levels", "tails")

    def __init__(self) -> None:
        self.levels: dict[str, _Node[T]] = {}
        """The nodes behind this one by their levels."""
        self.any: _Node[T] | None = None
        """The node behind a wildcard for one level."""
        self.ends: list[tuple[int, T]] = []
        """The filters that end here: their places in the order, and their values."""
        self.tails: list[tuple[int, T]] = []
        """The filters that end here with the wildcard for all that follows, in the same form."""


def check(topic_filter: str, notation: Notation) -> None:
    """Check that a text is a topic filter.

    Raises:
        ValueError: it is not. The message says what is allowed, and follows on "must be".
    """
    separator, one, rest = notation.value
    example = separator.join(("city", one, "traffic")), separator.join(("city", rest))
    allowed = f'a topic filter of {notation.name} such as "{example[0]}" or "{example[1]}"'
    levels = topic_filter.split(separator)
    if not topic_filter or len(topic_filter) > MAX_FILTER or len(levels) > MAX_LEVELS:
        raise ValueError(
            f"{allowed}, of 1 to {MAX_FILTER} characters and at most {MAX_LEVELS} levels"
        )
    if notation is Notation.MQTT:
        if levels[0] in ("$share", "$queue"):
            raise ValueError(f"{allowed}, and no shared subscription: messages have only topics")
        if "\0" in topic_filter:
            raise ValueError(f"{allowed}, without a zero character")
    elif not all(levels) or any(it.isspace() or it == "\0" for it in topic_filter):
        raise ValueError(f"{allowed}, without empty tokens and blanks")
    for level in levels[:-1]:
        if level == rest:
            raise ValueError(f'{allowed}: "{rest}" may stand at the end alone')
    # NATS takes a wildcard that is only a part of a token for a letter; MQTT refuses it.
    if any(len(level) > 1 and (one in level or rest in level) for level in levels):
        raise ValueError(f"{allowed}: a wildcard is a level by itself")


class Topics(Generic[T]):
    """Values by topic filters, in the order of the filters."""

    def __init__(
        self,
        filters: Iterable[tuple[str, T]],
        notation: Notation,
    ) -> None:
        """Make the trie of these filters.

        Args:
            filters: each with its value; `match` has values in this order.
            notation: the notation of the filters and of the topics.

        Raises:
            ValueError: a text is not a topic filter.
        """
        self._separator, one, rest = notation.value
        self._mqtt = notation is Notation.MQTT
        self._depth = 0
        """The number of levels of the longest filter."""
        self.identity = object()
        """It tells this trie from others, and keeps none of its values alive."""
        self._root: _Node[T] = _Node()
        for place, (text, value) in enumerate(filters):
            check(text, notation)
            node = self._root
            *levels, last = text.split(self._separator)
            self._depth = max(self._depth, len(levels) + 1)
            for level in levels:
                node = self._next(node, level, one)
            if last == rest:
                node.tails.append((place, value))
            else:
                self._next(node, last, one).ends.append((place, value))

    @staticmethod
    def _next(node: _Node[T], level: str, one: str) -> _Node[T]:
        if level != one:
            return node.levels.setdefault(level, _Node())
        if node.any is None:
            node.any = _Node()
        return node.any

    def match(self, topic: Topic) -> None:
        """Give a topic the values of the filters that it matches, in the order of the filters."""
        if topic.found_in is not self.identity:
            topic.first, *others = self.search(topic.text) or (None,)
            topic.others = tuple(others)
            topic.found_in = self.identity

    def search(self, topic: str) -> tuple[T, ...]:
        """The values of the filters that a text matches, in the order of the filters."""
        # Levels beyond the depth of the trie may stay in one piece: none of them is compared.
        levels = topic.split(self._separator, self._depth)
        nodes, found = [self._root], []
        for at, level in enumerate(levels):
            hidden = self._mqtt and at == 0 and level.startswith("$")
            following = []
            for node in nodes:
                if not hidden:
                    found += node.tails
                    if node.any is not None:
                        following.append(node.any)
                if (exact := node.levels.get(level)) is not None:
                    following.append(exact)
            nodes = following
            if not nodes:
                break
        for node in nodes:
            found += node.ends
            if self._mqtt:  # "a/#" is about "a", too.
                found += node.tails
        found.sort(key=lambda it: it[0])
        return tuple(value for _, value in found)
