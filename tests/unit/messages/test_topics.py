"""Topic filters: what each matches, in the order of the configuration, at any number of them."""

from __future__ import annotations

import pytest

from drld.messages.topics import MAX_LEVELS, Notation, Topic, TopicCache, Topics, check

MQTT, NATS = Notation.MQTT, Notation.NATS


@pytest.mark.parametrize(
    ("text", "topic", "matches"),
    [
        # MQTT 5, section 4.7.
        ("sport/tennis/player1/#", "sport/tennis/player1", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/ranking", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", True),
        ("sport/tennis/player1/#", "sport/tennis", False),
        ("sport/#", "sport", True),
        ("#", "sport/tennis", True),
        ("sport/tennis/+", "sport/tennis/player1", True),
        ("sport/tennis/+", "sport/tennis/player1/ranking", False),
        ("sport/+", "sport", False),
        ("sport/+", "sport/", True),
        ("+/+", "/finance", True),
        ("/+", "/finance", True),
        ("+", "/finance", False),
        ("+/tennis/#", "sport/tennis", True),
        ("#", "$SYS/broker", False),
        ("+/monitor/Clients", "$SYS/monitor/Clients", False),
        ("$SYS/#", "$SYS/broker", True),
        ("$SYS/monitor/+", "$SYS/monitor/Clients", True),
        ("a/+", "a/$b", True),
        ("ACCOUNTS", "Accounts", False),
        ("a b", "a b", True),
    ],
)
def test_filters_of_mqtt_match_as_its_specification_says(
    text: str, topic: str, matches: bool
) -> None:
    assert Topics([(text, 1)], MQTT).search(topic) == ((1,) if matches else ())


@pytest.mark.parametrize(
    ("text", "subject", "matches"),
    [
        ("time.*.east", "time.us.east", True),
        ("time.*.east", "time.us.west", False),
        ("time.*.east", "time.us.new.east", False),
        ("time.us.>", "time.us.east", True),
        ("time.us.>", "time.us.east.atlanta", True),
        ("time.us.>", "time.us", False),
        (">", "$SYS.server", True),
        ("*", "$SYS", True),
        ("*.*", "a", False),
        ("a.b", "a.b", True),
    ],
)
def test_filters_of_nats_match_as_its_documents_say(text: str, subject: str, matches: bool) -> None:
    assert Topics([(text, 1)], NATS).search(subject) == ((1,) if matches else ())


@pytest.mark.parametrize(
    ("notation", "text"),
    [
        (MQTT, ""),
        (MQTT, "a/#/b"),
        (MQTT, "a#"),
        (MQTT, "a/b+"),
        (MQTT, "#/"),
        (MQTT, "$share/group/a"),
        (MQTT, "a\0"),
        (MQTT, "/" * MAX_LEVELS),
        (MQTT, "a" * 1025),
        (NATS, ""),
        (NATS, "a..b"),
        (NATS, ".a"),
        (NATS, "a.>.b"),
        (NATS, "a b"),
        (NATS, "a*"),
    ],
)
def test_a_bad_filter_is_refused(notation: Notation, text: str) -> None:
    with pytest.raises(ValueError, match=f"^a topic filter of {notation.name} such as"):
        check(text, notation)
    with pytest.raises(ValueError, match="a topic filter"):
        Topics([(text, 1)], notation)


def test_all_filters_that_match_are_found_in_their_order() -> None:
    filters = ["a/b", "#", "+/b", "a/#", "a/+", "a/b/#", "b/#", "a/b"]
    topics = Topics(zip(filters, range(8), strict=True), MQTT)
    assert topics.search("a/b") == (0, 1, 2, 3, 4, 5, 7)
    assert topics.search("a/b/c") == (1, 3, 5)
    assert topics.search("c") == (1,)


def test_a_topic_keeps_what_one_trie_has_found() -> None:
    first, second = Topics([("#", 1)], MQTT), Topics([("a/+", 2)], MQTT)
    topic = Topic("a/b")
    for topics, value in ((first, 1), (first, 1), (second, 2), (first, 1)):
        topics.match(topic)
        assert (topic.first, topic.others) == (value, ())


def test_a_topic_has_the_further_values_of_a_trie_or_none() -> None:
    topic = Topic("a/b")
    for filters, first, others in (
        (["a/+", "#", "a/b"], 0, (1, 2)),
        (["a/c", "b"], None, ()),
        (["b", "a/#"], 1, ()),
    ):
        Topics(zip(filters, range(3), strict=False), MQTT).match(topic)
        assert (topic.first, topic.others) == (first, others)


def test_topics_are_cached_up_to_a_bound() -> None:
    cache = TopicCache(bytes.decode, 10)
    for number in range(1000):
        raw = str(number).encode()
        assert cache[raw] is cache[raw]
        assert cache[raw].text == str(number)
        assert cache[b"x" * 1000 + raw].text == "x" * 1000 + str(number)
        assert len(cache) <= 10
    assert all(len(raw) < 10 for raw in cache)


def test_a_topic_that_is_none_is_refused_each_time() -> None:
    cache = TopicCache(bytes.decode)
    for _ in range(2):
        with pytest.raises(UnicodeDecodeError):
            cache[b"\xff"]
    assert not cache


def test_a_search_looks_at_no_filter_that_does_not_match() -> None:
    """A search among 10,000 filters visits the same nodes as one among ten."""

    def visited(number: int) -> int:
        topics = Topics([(f"t/{it}/+", it) for it in range(number)], MQTT)
        nodes, count = [topics._root], 0
        for level in ("t", "5", "x"):
            nodes = [
                found
                for node in nodes
                for found in (node.any, node.levels.get(level))
                if found is not None
            ]
            count += len(nodes)
        assert topics.search("t/5/x") == (5,)
        return count

    assert visited(10) == visited(10_000) == 3


def test_a_long_topic_is_cut_only_as_deep_as_the_filters_are() -> None:
    topics = Topics([("a/+/#", 1), ("a/+", 2)], MQTT)
    assert topics.search("a" + "/b" * 100_000) == (1,)
    assert topics.search("a/b/") == (1,)
    assert topics.search("a/b") == (1, 2)
