"""Two limiters and a network that loses, repeats, delays, reorders and replays what they say.

Everything that was ever sent is kept, and may be delivered at any time to whom it was for: that is
loss, duplication, reordering and replay in one. Both daemons may begin new lives at any time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from drld.errors import WireError
from drld.gossip.wire.channel import MAX_ANSWERS, Channel
from drld.gossip.wire.control_codec import Control, End, Kind
from drld.gossip.wire.keyring import KeyRing
from drld.gossip.wire.message import VERSION
from drld.gossip.wire.session import Met, Session

from ..examples import examples
from ..tags import tagger
from ..wire import encode, mesh

KEY = bytes(range(16))
RING = KeyRing({1: KEY}, use=1)
OTHER = {"a": "b", "b": "a"}


@dataclass
class Side:
    """A daemon, its lives, and what it accepted."""

    name: str
    life: int = 0
    turn: int = 0
    met: list[int] = field(default_factory=list)
    """Lives of the other, in this life of its own."""
    got: list[int] = field(default_factory=list)
    """Control messages of the other, ever."""

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.life += 1
        self.met = []
        self.turn = 0
        # Lives are random numbers; here they also show which one came first.
        session = Session(End(self.life, 1), f"{self.name}{self.life}".encode())
        self.channel = Channel(self.name, OTHER[self.name], session, RING)


class World:
    """Both, and everything that was ever said."""

    def __init__(self) -> None:
        self.sides = {"a": Side("a"), "b": Side("b")}
        self.said: list[tuple[str, bytes]] = []
        """The receiver and the bytes of each datagram."""
        self.sent = 0
        self.lives: list[int] = []
        """The sender's life, by the number of the control message."""

    def tick(self) -> None:
        """Both drain their sockets."""
        for side in self.sides.values():
            side.turn += 1

    def tell(self, name: str) -> None:
        """A daemon tells the other something."""
        side = self.sides[name]
        message = Control(Kind.PROBE, self.sent, 0, 0)
        datagram = side.channel.seal(Kind.PROBE, message)
        if datagram is not None:
            self.sent += 1
            self.lives.append(side.life)
        else:
            datagram = side.channel.greet(side.turn)
        if datagram is not None:
            self.said.append((OTHER[name], datagram))

    def deliver(self, index: int) -> None:
        """Let something that was said arrive, now or again."""
        name, datagram = self.said[index % len(self.said)]
        side, other = self.sides[name], self.sides[OTHER[name]]
        try:
            _, message, answer = side.channel.open_untrusted(datagram, side.turn)
        except WireError as error:
            message = None
            answer = side.channel.answer_refused(datagram, error.reason, side.turn)
        if answer is not None:
            self.said.append((other.name, answer))
        if isinstance(message, Met):
            assert message.life <= other.life
            assert not side.met or message.life > side.met[-1], "an earlier life is back"
            side.met.append(message.life)
        elif message is not None:
            assert isinstance(message, Control)
            assert message.sequence not in side.got, "replayed"
            assert self.lives[message.sequence] == side.met[-1], "of another session"
            side.got.append(message.sequence)

    def agree(self) -> bool:
        a, b = (self.sides[name].channel.session for name in "ab")
        return a.theirs == b.mine and b.theirs == a.mine


actions = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["tell", "restart"]), st.sampled_from("ab")),
        st.tuples(st.just("tick"), st.just(0)),
        st.tuples(st.just("deliver"), st.integers(0, 10_000)),
        st.tuples(st.just("newest"), st.integers(1, 3)),
    ),
    max_size=60,
)


def play(world: World, script: list[tuple[str, str | int]]) -> None:
    for what, which in script:
        if what == "tick":
            world.tick()
        elif what == "tell":
            assert isinstance(which, str)
            world.tell(which)
        elif what == "restart":
            assert isinstance(which, str)
            world.sides[which].restart()
        elif world.said:
            assert isinstance(which, int)
            world.deliver(which if what == "deliver" else -which)


def is_hello(datagram: bytes) -> bool:
    return datagram[0] & 15 == Kind.HELLO


@settings(max_examples=examples(300))
@given(script=actions, told=st.sampled_from(["a", "b", "ab"]), replays=st.integers(0, 3))
def test_both_ends_agree_on_one_session(
    script: list[tuple[str, str | int]], told: str, replays: int
) -> None:
    """After any past; whoever has something to tell, and while old HELLOs are repeated."""
    world = World()
    play(world, script)
    past = [index for index, (_, datagram) in enumerate(world.said) if is_hello(datagram)]
    for round_number in range(5):
        world.tick()
        for name in told:
            first = len(world.said)
            world.tell(name)
            while first < len(world.said):
                for replay in range(replays):
                    if past:
                        world.deliver(past[(7 * round_number + replay) % len(past)])
                world.deliver(first)
                first += 1
                assert first < 500, "they never stop talking"
    assert world.agree()


@settings(max_examples=examples(200))
@given(script=actions)
def test_no_replay_ends_a_good_session(script: list[tuple[str, str | int]]) -> None:
    """Everything ever said comes again, twice; what belongs to the session only once."""
    world = World()
    play(world, script)
    for _ in range(3):
        world.tick()
        world.tell("a")
        world.deliver(-1)
        world.deliver(-1)
        world.deliver(-1)
        world.tell("b")
        world.deliver(-1)
    for index in range(len(world.said)):
        world.deliver(index)
    if not world.agree():
        return
    met = [list(side.met) for side in world.sides.values()]
    recorded = len(world.said)
    for index in [*range(recorded), *reversed(range(recorded))]:
        world.deliver(index)
    assert world.agree()
    assert [side.met for side in world.sides.values()] == met


UPDATE = mesh(1, 2, 3.0)


@settings(max_examples=examples(100))
@given(
    script=actions,
    forged=st.lists(
        st.one_of(
            st.binary(max_size=100),
            st.tuples(st.sampled_from(range(5)), st.binary(min_size=62, max_size=62)).map(
                lambda pair: bytes([VERSION << 4 | pair[0], 0x40]) + pair[1]
            ),
            st.binary(min_size=16, max_size=16).map(
                lambda key: tagger(key, "a", "b").seal(encode(UPDATE, 1))
            ),
        ),
        max_size=30,
    ),
)
def test_a_forger_without_the_key_changes_nothing(
    script: list[tuple[str, str | int]], forged: list[bytes]
) -> None:
    world = World()
    play(world, script)
    side = world.sides["b"]
    before = side.channel.session.theirs
    answers = 0
    for datagram in forged:
        try:
            side.channel.open_untrusted(datagram, side.turn)
            raise AssertionError("accepted")
        except WireError as error:
            if side.channel.answer_refused(datagram, error.reason, side.turn) is not None:
                answers += 1
    assert side.channel.session.theirs == before
    assert answers <= 1


def test_answers_are_bounded_and_cannot_be_starved() -> None:
    """Replayed HELLOs of other lives leave an answer to the honest one, unless they are many."""
    world = World()
    a, b = world.sides["a"], world.sides["b"]
    old = []
    for _ in range(MAX_ANSWERS + 2):
        greeting = a.channel.greet(a.turn)
        assert greeting is not None
        old.append(greeting)
        a.restart()
    answered = [
        b.channel.open_untrusted(datagram, 1).answer
        for _ in range(100)
        for datagram in old[: MAX_ANSWERS - 1]
    ]
    assert sum(answer is not None for answer in answered) == MAX_ANSWERS - 1
    greeting = a.channel.greet(a.turn)
    assert greeting is not None
    assert b.channel.open_untrusted(greeting, 1).answer is not None
    assert b.channel.open_untrusted(old[-1], 1).answer is None
    assert b.channel.open_untrusted(old[-1], 2).answer is not None
