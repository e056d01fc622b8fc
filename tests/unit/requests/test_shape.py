"""Questions whose names came before are decided as those that come for the first time."""

from __future__ import annotations

from random import Random

import pytest

from drld import config
from drld.client.protocol.check_codec import AT_LEAST, CHARGE, SIZE
from drld.control.turns import Turns
from drld.model import Enforcement
from drld.policy import Mode
from drld.requests.front import batch
from drld.requests.front.batch import BatchFront
from drld.requests.model import Request
from drld.requests.shape import Shape
from drld.requests.spec import ITEM, RequestMatch
from drld.units import BYTES

from .good import GOOD
from .made import bucket, limit, limited, of_plan

CALLER = "192.0.2.1"
FAIR = Enforcement(
    fill_rate=5 * ITEM, depth=6 * ITEM, flow_rate=ITEM, flow_depth=2 * ITEM, reserve=ITEM
)
KEYED = """
[[limit]]
id = {id}
name = "keyed-{id}"
unit = "requests"
rate = "9/d"
burst = 3
mode = "{mode}"
match = {{ namespace = "api", per = {per} }}
overrides = [{{ {key}, rate = "1/s", burst = 5 }}]
"""


class Forgetful(BatchFront):
    """Reads each question as if no other had come."""

    def _remember(self, named: tuple[bytes, ...], request: Request) -> None:
        pass


def fronts(mode: str) -> tuple[BatchFront, BatchFront]:
    text = GOOD[: GOOD.index("[[limit]]")]
    for number, per in ((4, '["user"]'), (5, '["user", "plan"]')):
        key = 'user = "a"' if number == 4 else 'user = "b", plan = "free"'
        text += KEYED.format(id=number, mode=mode, per=per, key=key)
    keyed = config.parse(text, "f").limits
    limits = (
        (limit(), FAIR),
        (of_plan(2, mode=Mode(mode)), bucket(3, rate=1)),
        (of_plan(3, mode=Mode.PAUSE), Enforcement()),
        *((it, Enforcement()) for it in keyed),
        (limit(6, unit=BYTES, match=RequestMatch("web", {"plan": "x", "user": "a"})), bucket(1)),
    )
    one, other = limited(*limits), limited(*limits)
    return BatchFront(one, lambda: 0, Turns()), Forgetful(other, lambda: 0, Turns())


def text(namespace: str, caller: str, pairs: list[tuple[str, str]], rest: bytes = b"") -> bytes:
    words = [namespace, caller, *(word for pair in pairs for word in pair)]
    return b"\xff".join(word.encode() for word in words) + rest


NAMES = ((), ("user",), ("plan",), ("user", "plan"), ("plan", "user"), ("user", "cost"), ("",))
VALUES = (("a", "free"), ("b", "free"), ("a", "x"), ("\u00e9", "x"), ("y" * 250, "x"), ("", ""))
RESTS = (b"", b"\xff", b"\xffuser", b"\xffplan", b"\xffuser\xffa", b"\x80", b"\xffuser\xffb")
TEXTS = [
    text(namespace, caller, [*zip(names, values, strict=False)], rest)
    for namespace in ("api", "web", "", "\u00e9")
    for caller in ("", "alice")
    for names in NAMES
    for values in VALUES
    for rest in RESTS
] + [b"api", b"web", b""]
PLAIN = [(cost, 0, 0, 0) for cost in (1, 2, 3, 0, 6, 200, 2**31, 2**32 - 1)]
AMOUNTS = [*PLAIN, (2, 1, 0, AT_LEAST), (2, 3, 7, AT_LEAST | SIZE), (1, 0, 7, SIZE)]
AMOUNTS += [(1, 0, 0, CHARGE), (0, 0, 0, CHARGE), (0, 0, 9, CHARGE | SIZE), (1, 0, 0, 8)]


def answer(front: BatchFront, words: bytes) -> batch.Written:
    (written,) = front.answers([((0, 1, 0, 0, 0, len(words)), words)], CALLER, 0)
    return written


@pytest.mark.parametrize("mode", ["enforce", "shadow", "pause"])
@pytest.mark.parametrize("gap_ns", [0, 10**9])
@pytest.mark.parametrize("together", [1, 8])
def test_a_remembered_shape_changes_no_answer(mode: str, gap_ns: int, together: int) -> None:
    """Questions come alone, or together and often under the same limit."""
    one, other = fronts(mode)
    rng = Random(f"{mode} {gap_ns}")
    words = TEXTS[0]
    for number in range(6000 // together):
        checks = list[batch.Check]()
        for place in range(together):
            if not place or rng.random() < 0.5:
                # Half of them are what one expects.
                words = rng.choice(TEXTS) if rng.random() < 0.5 else rng.choice(TEXTS[::7])
            amounts = rng.choice(AMOUNTS) if rng.random() < 0.5 else (1, 0, 0, 0)
            checks.append(((number + place, *amounts, len(words)), words))
        now_ns = 10**15 + number * gap_ns
        expected = [other.answers([check], CALLER, now_ns)[0] for check in checks]
        assert one.answers(checks, CALLER, now_ns) == expected, checks
    assert one.datapath.counters() == other.datapath.counters()
    for limit_id in one.datapath.limits:
        read, as_expected = (it.datapath.read(limit_id, 10**16) for it in (one, other))
        assert read == as_expected


@pytest.mark.parametrize("most", [4, 100])
def test_names_of_strangers_are_remembered_up_to_a_bound(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(batch, "_MAX_SHAPES", most)
    front, _ = fronts("enforce")
    for number in range(20):
        for words in (text("web", "", [(f"name-{number}", "x")]), text("web", "", [])):
            answer(front, words)
            assert 0 < len(front._shapes) <= min(most, number + 2)


def test_a_reload_ends_what_was_found_out() -> None:
    front = BatchFront(limited((limit(), bucket(3))), lambda: 0, Turns())
    words = text("api", "", [])
    for _ in range(2):
        assert answer(front, words)[1] == b"limit-1"
    limited((limit(2), bucket(3)), datapath=front.datapath)
    front.renew()
    assert answer(front, words)[1] == b"limit-2"


def test_a_shape_remembers_a_bounded_number_of_choices() -> None:
    values = [str(number) for number in range(100)]
    shape = Shape(["plan"], {"plan": values}, lambda descriptor: [descriptor["plan"]])
    assert [shape.find([value.encode()]) for value in values] == [[value] for value in values]
    assert 0 < len(shape._found) <= 64


def test_a_text_of_one_part_is_a_mistake_also_after_a_question_with_its_namespace() -> None:
    front = BatchFront(limited((limit(), bucket(3))), lambda: 0, Turns())
    asked = text("api", "", [])
    assert answer(front, asked)[1] == b"limit-1"
    _, mistake = answer(front, b"api")
    assert mistake == b"a question must have a namespace, a caller, and pairs"
