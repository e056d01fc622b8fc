"""The handshake, message by message."""

from drld.gossip.wire.control_codec import NO_END, End, Hello
from drld.gossip.wire.session import Session

A, B, C = End(10, 1), End(20, 1), End(30, 1)


def pair() -> tuple[Session, Session]:
    return Session(A, b"of a"), Session(B, b"of b")


def answer(session: Session, hello: Hello) -> Hello:
    """The answer of a session to a greeting that proves no life."""
    reaction = session.receive(hello)
    assert not reaction.met
    assert reaction.answer is not None
    return reaction.answer


def proof(session: Session, hello: Hello) -> Hello:
    """The answer of a session to a greeting that proves the peer's life."""
    reaction = session.receive(hello)
    assert reaction.met
    assert reaction.answer is not None
    return reaction.answer


def met(a: Session, b: Session) -> None:
    """Let a greet b, and both finish."""
    assert b.receive(proof(a, answer(b, a.greet()))) == (True, None)


def test_three_messages_make_a_session() -> None:
    a, b = pair()
    assert [a.open, b.open] == [False, False]
    assert a.greet().yours == NO_END
    met(a, b)
    assert (a.theirs, b.theirs) == (B, A)
    assert [a.open, b.open] == [True, True]
    assert a.ends == tuple(reversed(b.ends))


def test_both_may_begin() -> None:
    a, b = pair()
    from_a, from_b = a.greet(), b.greet()
    to_a, to_b = answer(b, from_a), answer(a, from_b)
    last_a, last_b = proof(a, to_a), proof(b, to_b)
    assert a.receive(last_b) == b.receive(last_a) == (False, None)


def test_a_hello_of_the_present_session_is_not_answered() -> None:
    a, b = pair()
    met(a, b)
    assert a.receive(b.greet()) == (False, None)


def test_a_peer_that_lost_the_last_message_is_answered() -> None:
    a, b = pair()
    proof(a, answer(b, a.greet()))
    assert b.receive(answer(a, b.greet())) == (True, None)


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
        assert later.receive(answer(b, hello)) == (False, None)
    assert b.theirs == C


def test_a_proof_is_good_for_one_session_only() -> None:
    """A life that was challenged, and is over before it has answered, does not come after."""
    _, b = pair()
    challenged = Session(C, b"of c")
    late = proof(challenged, answer(b, challenged.greet()))
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
