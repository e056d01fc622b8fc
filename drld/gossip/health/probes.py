"""Probes find out which peers are alive: SWIM with Lifeguard's refinements, as a state machine.

Das, Gupta, Motivala, *SWIM* (DSN 2002); Dadgar, Phillips, Currey, *Lifeguard* (2017).
`drld.gossip.health.probe_times` has the times, and the proof that no peer is declared dead too
soon. Probes only report: updates decide which peers count (`drld.gossip.fabrics.membership`).

Theory of operation. Once a period a limiter probes one peer, in shuffled round-robin order. If no
acknowledgement comes in time, it probes again, and asks `helpers` other peers to probe, too. If
none comes by the end of the period, it suspects the peer. The states of limiters travel as rumours
on probes and acknowledgements, without messages of their own. So a limiter sends about one probe
and one acknowledgement a period, with any fabric and any size of the fleet.

Awareness. A limiter's awareness is 0 to `patience`. It rises by one for each helper that did not
confirm the request (Lifeguard's nack), for each refuted suspicion of this limiter, and for a late
tick. It falls by one for each answered probe. A limiter waits 1 + awareness times as long before it
judges a peer. After a pause of its own, it postpones its deadlines by the pause.

Buddies. A message to a limiter begins with the rumour held against it. A limiter that hears that it
is suspected or dead raises its counter. It puts this refutation on each of its messages until one
of them is answered, and sends it as a rumour.

Last call. For R before it declares a peer dead, a limiter repeats its suspicion once a period.
Limiters that have heard the refutation answer with it, so every limiter in contact hears it.

Absent peers. An absent peer (`drld.gossip.health.probe_turns`) is probed once in `ABSENT_PERIODS`,
so that both sides of a partition find each other again. Such a probe judges no peer. If gossip
comes from a dead peer, the peer is probed at once, at most once a period. So it hears the rumour
that it must refute.

A limiter out of contact with its peers judges none of them (`drld.gossip.health.isolation`).

Deviations from the papers: a probe is repeated when helpers are asked, and when a handshake with
its target is completed. Awareness stretches waiting, not the period. Accusers are a bit set, and
lives random numbers (`drld.gossip.health.broadcast_queue`). Leaving is a rumour about oneself.

Bounds. Messages are authenticated, but their sender may send too many. Tables are bounded by the
number of peers. A message causes at most one answer and one probe, for at most `MAX_ANSWERS`
messages of a peer in a tick.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from random import Random

from drld.gossip.health.broadcast_queue import BroadcastQueue, accuser, subject
from drld.gossip.health.config_digest import ALL, SELECTOR_BITS, ConfigDigest, Selector
from drld.gossip.health.isolation import Isolation
from drld.gossip.health.peer_states import PeerStates
from drld.gossip.health.probe_times import ProbeTimes
from drld.gossip.health.probe_turns import ProbeTurns
from drld.gossip.wire.control_codec import MAX_RUMOURS, Control, Kind, Rumour, State

ABSENT_PERIODS = 5
"""The periods from one probe of an absent peer to the next."""
MAX_ERRANDS = 32
"""The most probes on behalf of peers that begin in a period, or are under way."""
MAX_ANSWERS = 8
"""The most answers to one peer in a tick. A peer needs two or three. If more wait after a late
tick, their answers come too late anyway."""
FAREWELLS = 10
"""The number of peers that get a farewell; rumours tell the others."""
_MAX_COUNTER = (1 << 32) - 1
_NUMBERS = 1 << (32 - SELECTOR_BITS)


@dataclass(slots=True)
class _Probe:
    """A probe without an answer yet."""

    peer: str
    sent_ns: int
    ask_ns: int
    """Time at which helpers are asked, ns."""
    judge_ns: int
    """Time at which the limiter stops waiting for an answer, ns."""
    counter: int
    """The number of this limiter's message with the probe, as its session counts."""
    judged: bool = True
    """Whether the peer is suspected if it does not answer."""
    errand: tuple[str, int] | None = None
    """The peer that asked for this probe, and the sequence number of its request."""
    asked_ns: int | None = None
    """Time at which helpers were asked, ns; None: not yet."""
    helpers: list[str] = field(default_factory=list)
    heard: set[str] = field(default_factory=set)
    """Helpers that confirmed the request."""


class Probes:
    """One limiter's prober: it probes peers, answers probes, and spreads rumours."""

    def __init__(
        self,
        name: str,
        life: int,
        peers: Collection[str],
        times: ProbeTimes,
        config_digest: ConfigDigest,
    ) -> None:
        """`life` is this limiter's incarnation, 64 random bits, not 0."""
        self.name = name
        self.life = life
        self.counter = 0
        """Number of refutations by this life."""
        self.awareness = 0
        self.peer_states = PeerStates((), times)
        self._peers: tuple[str, ...] = ()
        self._subject = subject(name)
        self._broadcasts = BroadcastQueue(times.transmissions)
        self._pending: dict[int, _Probe] = {}
        self._number = 0
        self._turns = ProbeTurns(self.peer_states)
        self._dead_but_heard: set[str] = set()
        """Peers with the state dead although gossip came from them."""
        self._probed_at_once: set[str] = set()
        """Peers that were probed for that reason in this period."""
        self._errands = 0
        """The number of probes on behalf of peers in this period."""
        self._periods = 0
        self._due_ns: int | None = None
        self._ticked_ns: int | None = None
        self._isolation = Isolation(times)
        self._known_counter = 0
        """The newest counter on an answered probe."""
        self._outbox: list[tuple[str, Control]] = []
        self._answers: Counter[str] = Counter()
        """Answers to each peer since the last tick."""
        self.set_peers(peers, times, config_digest)

    def set_peers(
        self, peers: Collection[str], times: ProbeTimes, config_digest: ConfigDigest
    ) -> None:
        """Take over a changed configuration; keep the state of the peers that stay."""
        kept = set(peers) & set(self._peers)
        added = set(peers) - kept
        self._peers = tuple(sorted(peers))
        self.times = self._isolation.times = times
        self.config_digest = config_digest
        self.awareness = min(self.awareness, times.patience)
        self.peer_states.set_peers(peers, times)
        if not kept:
            # No peer stays that could answer, and without peers no tick is late.
            self._isolation, self._ticked_ns = Isolation(times), None
        self._accuser = accuser(self.name, peers)
        subjects = {subject(peer) for peer in kept} | {self._subject}
        self._broadcasts.retain(subjects, times.transmissions)
        if added:
            self._broadcasts.add(self._myself())
        self._turns.set_peers(peers)
        self._dead_but_heard &= kept
        self._probed_at_once &= kept
        self._pending = {
            sequence: replace(probe, helpers=[peer for peer in probe.helpers if peer in kept])
            for sequence, probe in self._pending.items()
            if probe.peer in kept and (probe.errand is None or probe.errand[0] in kept)
        }
        self._outbox = [(peer, message) for peer, message in self._outbox if peer in kept]

    def isolated(self, now_ns: int) -> bool:
        """Whether the peers may have declared this limiter dead."""
        return self._isolation.isolated(now_ns)

    def meet(self, peer: str, life: int, now_ns: int) -> None:
        """A handshake with a new life of a peer is complete, which is an answer of the peer."""
        self._isolation.meet(now_ns)
        self._turns.hear(peer)
        self._tell(self.peer_states.meet(peer, life, now_ns))
        # Earlier probes to the peer had no session, and were lost.
        for sequence, probe in self._pending.items():
            if probe.peer == peer:
                self._send(peer, Kind.PROBE, sequence, subject(peer))

    def receive(self, peer: str, message: Control, now_ns: int) -> None:
        """Receive a probe, an acknowledgement or a request; the next `tick` returns the answers."""
        self.peer_states.hear(peer, now_ns)
        self._turns.hear(peer)
        for rumour in message.rumours:
            if rumour.subject == self._subject:
                self._hear_of_myself(rumour)
            else:
                self._tell(self.peer_states.take(rumour, now_ns))
        self.config_digest.compare(peer, Selector.of(message.sequence), message.digest)
        if message.kind is Kind.ACK:
            self._take_answer(peer, message)
            return
        self._answers[peer] += 1
        if self._answers[peer] > MAX_ANSWERS:
            return
        if message.kind is Kind.PROBE:
            if message.target == self._subject:
                self._send(peer, Kind.ACK, message.sequence, self._subject)
        else:
            self._send(peer, Kind.ACK, message.sequence, self._subject)
            self._run_errand(peer, message, now_ns)

    def gossip_came(self, peer: str) -> None:
        """Gossip came from a peer. If its state is dead, the next tick probes it."""
        if self.peer_states.state(peer) is State.DEAD:
            self._dead_but_heard.add(peer)

    def tick(self, now_ns: int, rng: Random) -> list[tuple[str, Control]]:
        """Judge, probe and ask helpers when it is due; return messages with their receivers.

        Call it after all messages that came by `now_ns` were received.
        """
        if not self._peers:
            return []
        self._notice_lateness(now_ns)
        self._end_waits(now_ns, rng)
        if self._isolation.caught_up(now_ns):
            for dead in self.peer_states.expire(now_ns):
                self._tell(dead)
        if self._due_ns is None:
            # Limiters that start together need not probe together.
            self._due_ns = now_ns + rng.randrange(self.times.period_ns)
        self._probe_dead_but_heard(now_ns)
        if now_ns >= self._due_ns:
            late = now_ns - self._due_ns >= self.times.period_ns
            self._due_ns = (now_ns if late else self._due_ns) + self.times.period_ns
            self._begin_period(now_ns, rng)
        question = self.config_digest.question(now_ns)
        if question is not None and self._turns.is_present(question[0]):
            peer, selector = question
            self._send(peer, Kind.PROBE, self._take_number(selector), subject(peer))
        outbox, self._outbox = self._outbox, []
        self._answers.clear()
        return outbox

    def _end_waits(self, now_ns: int, rng: Random) -> None:
        """Judge the probes that were not answered in time, and ask helpers for the slow ones."""
        for sequence, probe in list(self._pending.items()):
            if now_ns >= probe.judge_ns:
                del self._pending[sequence]
                self._judge(probe, now_ns)
            elif probe.asked_ns is None and now_ns >= probe.ask_ns:
                self._ask(sequence, probe, now_ns, rng)

    def _probe_dead_but_heard(self, now_ns: int) -> None:
        """Probe peers that are dead although gossip came from them, once a period each."""
        if not self._dead_but_heard:
            return
        waiting = {probe.peer for probe in self._pending.values()}
        at_once = self._dead_but_heard - waiting - self._probed_at_once
        for peer in sorted(at_once):
            self._probe(peer, now_ns, judged=False)
        self._probed_at_once |= at_once
        self._dead_but_heard.clear()

    def farewell(self, rng: Random) -> list[tuple[str, Control]]:
        """Messages with their receivers, for a limiter that leaves and enforces no limit."""
        left = Rumour(self._subject, self.life, self.counter, State.LEFT)
        heard = (State.ALIVE, State.SUSPECT)
        present = [peer for peer in self._peers if self.peer_states.state(peer) in heard]
        receivers = rng.sample(present, min(FAREWELLS, len(present)))
        digest = self.config_digest.digest(ALL)
        # An acknowledgement of no probe: no peer answers it.
        return [(peer, Control(Kind.ACK, 0, self._subject, digest, (left,))) for peer in receivers]

    def _notice_lateness(self, now_ns: int) -> None:
        last_ns, self._ticked_ns = self._ticked_ns, now_ns
        if last_ns is None:
            return
        times = self.times
        late_ns = now_ns - last_ns - times.tick_ns
        self._isolation.look(now_ns)
        if self._isolation.cut_off:
            self.peer_states.postpone(now_ns - last_ns)
        elif late_ns > times.tick_ns:
            self.peer_states.postpone(late_ns)
        if late_ns > times.tick_ns:
            self._doubt(1 + late_ns // times.period_ns)
            for probe in self._pending.values():
                probe.ask_ns += late_ns
                probe.judge_ns += late_ns

    def _doubt(self, by: int) -> None:
        self.awareness = max(0, min(self.times.patience, self.awareness + by))

    def _begin_period(self, now_ns: int, rng: Random) -> None:
        self._periods += 1
        self._probed_at_once.clear()
        self._errands = 0
        for suspicion in self.peer_states.lasting(now_ns):
            self._broadcasts.remind(suspicion)
        present = self._turns.next_present(rng)
        if present is not None:
            self._probe(present, now_ns, judged=True)
        if present is None or self._periods % ABSENT_PERIODS == 0:
            absent = self._turns.next_absent(rng)
            if absent is not None:
                self._probe(absent, now_ns, judged=False)

    def _probe(
        self, peer: str, now_ns: int, *, judged: bool, errand: tuple[str, int] | None = None
    ) -> None:
        sequence = self._take_number(ALL)
        wait = 1 + self.awareness if judged else 1
        self._pending[sequence] = _Probe(
            peer,
            sent_ns=now_ns,
            ask_ns=now_ns + wait * self.times.timeout_ns,
            judge_ns=now_ns + wait * self.times.period_ns,
            counter=self.counter,
            judged=judged,
            errand=errand,
        )
        self._send(peer, Kind.PROBE, sequence, subject(peer))

    def _ask(self, sequence: int, probe: _Probe, now_ns: int, rng: Random) -> None:
        """Probe again, and ask helpers to probe."""
        probe.asked_ns = now_ns
        self._send(probe.peer, Kind.PROBE, sequence, subject(probe.peer))
        if not probe.judged:
            return
        others = [
            peer
            for peer in self._peers
            if peer != probe.peer and self.peer_states.state(peer) is State.ALIVE
        ]
        probe.helpers = rng.sample(others, min(self.times.helpers, len(others)))
        for helper in probe.helpers:
            self._send(helper, Kind.PROBE_REQUEST, sequence, subject(probe.peer))

    def _judge(self, probe: _Probe, now_ns: int) -> None:
        """Judge a peer by a probe without an answer."""
        if not probe.judged:
            return
        self._doubt(len(probe.helpers) - len(probe.heard) if probe.helpers else 1)
        if self.peer_states.known(probe.peer) is None:
            self._turns.miss(probe.peer)
        elif not self.isolated(now_ns):
            self._tell(self.peer_states.accuse(probe.peer, self._accuser, now_ns))

    def _take_answer(self, peer: str, message: Control) -> None:
        probe = self._pending.get(message.sequence)
        if probe is None or (peer != probe.peer and peer not in probe.helpers):
            return
        sent_ns = probe.sent_ns
        if peer != probe.peer:
            assert probe.asked_ns is not None
            sent_ns = probe.asked_ns
        self._isolation.answer(sent_ns)
        self._known_counter = max(self._known_counter, probe.counter)
        if message.target == subject(probe.peer):
            del self._pending[message.sequence]
            if probe.judged:
                self._doubt(-1)
            if probe.errand is not None:
                requester, sequence = probe.errand
                self._send(requester, Kind.ACK, sequence, message.target)
        elif message.target == subject(peer):
            probe.heard.add(peer)

    def _run_errand(self, peer: str, message: Control, now_ns: int) -> None:
        target = self.peer_states.peer(message.target)
        under_way = sum(probe.errand is not None for probe in self._pending.values())
        errands = max(self._errands, under_way)
        if target is not None and target != peer and errands < MAX_ERRANDS:
            self._errands += 1
            self._probe(target, now_ns, judged=False, errand=(peer, message.sequence))

    def _hear_of_myself(self, rumour: Rumour) -> None:
        """Refute a rumour that this limiter is suspected, dead or has left."""
        if rumour.state is State.ALIVE:
            return
        refuting = min(rumour.counter + 1, _MAX_COUNTER)
        if rumour.life == self.life and refuting > self.counter:
            self.counter = refuting
            self._doubt(1)
        # The sender of the rumour has not heard the refutation.
        self._broadcasts.add(self._myself())

    def _myself(self) -> Rumour:
        return Rumour(self._subject, self.life, self.counter, State.ALIVE)

    def _tell(self, rumour: Rumour | None) -> None:
        if rumour is not None:
            self._broadcasts.add(rumour)

    def _take_number(self, selector: Selector) -> int:
        self._number = (self._number + 1) % _NUMBERS
        return self._number << SELECTOR_BITS | selector.pack()

    def _send(self, peer: str, kind: Kind, sequence: int, target: int) -> None:
        first = []
        if self.counter > self._known_counter:
            first.append(self._myself())
        held = self.peer_states.known(peer)
        if held is not None and held.state is not State.ALIVE:
            first.append(held)
        told = frozenset(rumour.subject for rumour in first)
        first += self._broadcasts.take(MAX_RUMOURS - len(first), without=told)
        digest = self.config_digest.digest(Selector.of(sequence))
        self._outbox.append((peer, Control(kind, sequence, target, digest, tuple(first))))
