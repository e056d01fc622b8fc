"""Topic filters and topics: what matches is what the protocols' texts say, level by level."""

from __future__ import annotations

from collections.abc import Iterator

from drld.messages.topics import MAX_FILTER, MAX_LEVELS, Notation, Topic, Topics, check
from tests.fuzz.targets.base import Target

MOST_FILTERS = 50


def check_all(data: bytes) -> bool:
    """Lines: the notation, a topic, and filters."""
    head, _, rest = data.decode(errors="replace").partition("\n")
    notation = Notation.NATS if head.startswith("n") else Notation.MQTT
    topic, *lines = rest.split("\n")
    sound = [it for it in lines[:MOST_FILTERS] if is_filter(it, notation)]
    topics = Topics([(text, number) for number, text in enumerate(sound)], notation)
    expected = tuple(number for number, it in enumerate(sound) if matches(it, topic, notation))
    found = topics.search(topic)
    assert list(found) == sorted(set(found))
    assert found == expected, (topic, sound, found, expected)
    topics.match(known := Topic(topic))
    assert (known.first, *known.others) == (found or (None,))
    return bool(expected)


def is_filter(text: str, notation: Notation) -> bool:
    """Whether a text is taken for a filter; then it is within the bounds."""
    try:
        check(text, notation)
    except ValueError as error:
        reason = str(error)
    else:
        reason = ""
    if reason:
        assert reason.startswith("a topic filter of")
        return False
    separator, one, rest = notation.value
    levels = text.split(separator)
    assert 1 <= len(text) <= MAX_FILTER
    assert len(levels) <= MAX_LEVELS
    assert rest not in levels[:-1]
    assert not any(len(it) > 1 and (one in it or rest in it) for it in levels)
    return True


def matches(text: str, topic: str, notation: Notation) -> bool:
    """The same without a trie: both are walked together."""
    separator, one, rest = notation.value
    wanted, levels = text.split(separator), topic.split(separator)
    if notation is Notation.MQTT and topic.startswith("$") and wanted[0] in (one, rest):
        return False
    for at, level in enumerate(wanted):
        if level == rest:
            return len(levels) >= at + (notation is Notation.NATS)
        if at >= len(levels) or level not in (one, levels[at]):
            return False
    return len(levels) == len(wanted)


def seeds() -> Iterator[bytes]:
    """Each notation, with filters that match and others."""
    yield b"m\ncity/traffic/7\ncity/#\ncity/+/7\n#\n+/traffic\ncity/traffic/7/#\n$SYS/#"
    yield b"m\n$SYS/broker\n#\n+/broker\n$SYS/+\n$share/a/b"
    yield b"m\n/\n+/+\n/+\n/#\n#\n/"
    yield b"n\ncity.traffic.7\ncity.>\ncity.*.7\n>\ncity.traffic.7.>\n*.traffic"
    yield b"n\na..b\na.*.b\n>\n*"


TARGET = Target(
    check_all, seeds, words=(b"/", b"+", b"#", b".", b"*", b">", b"$", b"$SYS/", b"$share/", b"\n")
)
