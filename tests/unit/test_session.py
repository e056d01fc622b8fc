"""The handshake, message by message."""

from drld.gossip.wire.control_codec import NOBODY, End, Hello
from drld.gossip.wire.session import Session

A, B, C = End(10, 1), End(20, 1), End(30, 1)


def pair() -> tuple[Session, Session]:
    return Session(A, b"of a"), Session(B, b"of b")


def met(a: Session, b: Session) -> None:
    """Let a greet b, and both finish."""
    first = b.receive(a.greet())
    assert not first.met
    assert first.answer is not None
    second = a.receive(first.answer)
    assert second.met
    assert second.answer is not None
    assert b.receive(second.answer) == (True, None)


def test_three_messages_make_a_session() -> None:
    a, b = pair()
    assert [a.open, b.open] == [False, False]
    assert a.greet().yours == NOBODY
    met(a, b)
    assert (a.theirs, b.theirs) == (B, A)
    assert [a.open, b.open] == [True, True]
    assert a.ends == tuple(reversed(b.ends))


def test_both_may_begin() -> None:
    a, b = pair()
    from_a, from_b = a.greet(), b.greet()
    to_a, to_b = b.receive(from_a).answer, a.receive(from_b).answer
    assert to_a is not None
    assert to_b is not None
    last_a, last_b = a.receive(to_a), b.receive(to_b)
    assert last_a.met
    assert last_b.met
    assert last_a.answer is not None
    assert last_b.answer is not None
    assert a.receive(last_b.answer) == b.receive(last_a.answer) == (False, None)


def test_who_has_the_session_is_not_answered() -> None:
    a, b = pair()
    met(a, b)
    assert a.receive(b.greet()) == (False, None)


def test_who_lost_the_last_message_is_answered() -> None:
    a, b = pair()
    first = b.receive(a.greet()).answer
    assert first is not None
    assert a.receive(first).met
    again = a.receive(b.greet())
    assert not again.met
    assert again.answer is not None
    assert b.receive(again.answer) == (True, None)


def test_a_new_life_is_met_and_the_old_one_stays_over() -> None:
    a, b = pair()
    recorded = [a.greet()]
    met(a, b)
    recorded.append(a.greet())
    # A second life of a meets b, and b a.
    later = Session(C, b"of c")
    met(later, b)
    assert b.theirs == C
    for hello in recorded:
        reaction = b.receive(hello)
        assert not reaction.met
        assert reaction.answer is not None
        assert later.receive(reaction.answer) == (False, None)
    assert b.theirs == C


def test_a_proof_is_good_for_one_session_only() -> None:
    """A life that was challenged, and is over before it has answered, does not come after."""
    _, b = pair()
    challenged = Session(C, b"of c")
    challenge = b.receive(challenged.greet()).answer
    assert challenge is not None
    late = challenged.receive(challenge).answer
    assert late is not None
    assert late.echo == b.greet().nonce
    met(Session(A, b"of a"), b)
    assert not b.receive(late).met
    assert b.theirs == A


def test_an_echo_of_zero_proves_nothing() -> None:
    a, _ = pair()
    assert a.greet().nonce != 0
    assert not a.receive(Hello(B, A, 1, 0)).met


def test_nonces_differ_with_the_secret_and_the_ends() -> None:
    sessions = [Session(A, b"1"), Session(A, b"2"), Session(B, b"1"), Session(End(10, 2), b"1")]
    assert len({session.greet().nonce for session in sessions}) == len(sessions)
