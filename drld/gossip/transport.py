"""The gossip socket: sends sealed datagrams and opens received ones (a shell, no decisions).

One UDP socket is bound to the address that peers know this limiter by, because they identify it by
the source address. The transport keeps one `drld.gossip.wire.channel` with its session for each
peer. The owner sends and receives messages of any kind (`drld.gossip.wire.message`). Of a handshake
it learns only that a peer was `Met`.

Nothing here blocks, and no peer and no network error is fatal: refused datagrams and failures to
send are counted by reason. The owner drains the socket at the start of a tick. Until then the
kernel keeps the datagrams, and the receive buffer is large enough for them.
"""

from __future__ import annotations

import errno
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from random import Random, SystemRandom
from types import MappingProxyType
from typing import Any, NamedTuple

from drld.errors import ConfigError, WireError
from drld.gossip.wire.channel import Channel, Opened
from drld.gossip.wire.control_codec import End, Kind
from drld.gossip.wire.keyring import KeyRing
from drld.gossip.wire.message import MAX_DATAGRAM, codec_of, number_of
from drld.gossip.wire.messenger import Deliver
from drld.gossip.wire.session import Session

RECEIVE_BUFFER = 4 << 20
"""The size of the receive buffer, bytes: it holds 5,000 datagrams of one update, of 768 each."""
_LEAST_CHARGE = 512
"""Bytes of the receive buffer that a datagram takes at least, beside its length."""
_HEADERS = {socket.AF_INET: 20 + 8, socket.AF_INET6: 40 + 8}
"""Bytes of the IP and UDP headers."""
_SO_RCVBUFFORCE = 33
"""The option's number on Linux; the socket module lacks it."""

MAX_REFUSED = 1024
"""The datagrams without effect that one `receive` reads; it leaves the rest for the next. They take
2 to 8 ms (`scripts/bench hostile`)."""
REFUSED_PER_PEER = 2
"""The bound for each peer, used if the sum over the peers is larger. After a flood the owner
refuses all updates. So the fleet's own updates of a tick must not count as another flood, or it
would never end. They are a datagram from each peer (of up to 72 limits), and as many again of the
backlog."""

Address = tuple[str, int]


class _Peer(NamedTuple):
    name: str
    address: Address
    channel: Channel


class Transport:
    """The messages of one limiter, to and from its peers."""

    def __init__(
        self,
        listen: Address,
        me: str,
        peers: Mapping[str, Address],
        ring: KeyRing | None = None,
        rng: Random | None = None,
        *,
        most_delivered: int | None = None,
    ) -> None:
        """Bind the socket; this life of the limiter begins, with a number from `rng`.

        Args:
            listen: the address of this limiter.
            me: its name.
            peers: the addresses of the other limiters.
            ring: the keys.
            rng: makes secrets; None: the system's.
            most_delivered: the bytes of datagrams after which a `receive` delivers no more, and
                leaves the rest for the next; None: no bound but the receive buffer.

        Raises:
            ConfigError: an address is no IP address, or of another family than `listen`; two
                peers share one.
            OSError: `listen` cannot be bound.
        """
        self.rejected: Counter[str] = Counter()
        """Refused datagrams by reason: `address` (of no peer), or that of the `WireError`. Also
        delivered updates that the owner refused (`refuse`)."""
        self.other_versions: dict[str, int] = {}
        """The wire version of peers that sent another one, by name. Any host can forge such a
        datagram. The next one that is accepted from the peer removes it."""
        self.refused_kinds: dict[str, tuple[int, str]] = {}
        """The kind and the reason of the newest refused message of each peer, by name; the next
        update that is not refused removes it."""
        self._refused = 0
        """Datagrams and updates without effect in this `receive`."""
        self.drained = True
        """Whether the last `receive` emptied the socket; if not, the next datagrams may be old."""
        self.handshakes = 0
        """Number of HELLOs sent."""
        self.greetings = 0
        """Number of HELLOs received with a valid tag."""
        self.floods = 0
        """Times that `receive` ended at `MAX_REFUSED`, before the socket was empty."""
        self.met = 0
        """Number of completed handshakes."""
        self.errors: Counter[str] = Counter()
        """Errors of the socket, by name (`ENETUNREACH`)."""
        self.sent = self.received = 0
        """Updates sent and delivered."""
        self.control_sent = self.control_received = 0
        """Messages of numbered kinds sent and delivered."""
        self.bytes_sent = 0
        """Bytes of the IP packets sent."""
        self._me = me
        self.ring = ring or KeyRing()
        """The keys in force."""
        rng = rng or SystemRandom()
        self.life = rng.getrandbits(64) or 1
        """The incarnation of this daemon."""
        self._secret = rng.randbytes(16)
        self._openings = 0
        """Number of sessions that this daemon has begun."""
        self._turn = 0
        self._by_name: dict[str, _Peer] = {}
        self._by_address: dict[Address, _Peer] = {}
        self._family, _ = _numeric(listen, "limiter.listen")
        self.update_peers(peers)
        self._header_size = _HEADERS[self._family]
        self._socket, self._pending_limit = _bound(self._family, listen)
        self._most_delivered = most_delivered

    @property
    def address(self) -> Address:
        """The address and port of the socket."""
        host, port = self._socket.getsockname()[:2]
        return host, port

    def fileno(self) -> int:
        """The descriptor of the socket, to wait for datagrams."""
        return self._socket.fileno()

    def update_peers(self, peers: Mapping[str, Address]) -> Callable[[], None]:
        """Replace the peers after a reload; return a function that undoes it.

        Raises:
            ConfigError: as in the constructor; nothing is changed.
        """
        by_name: dict[str, _Peer] = {}
        by_address: dict[Address, _Peer] = {}
        problems = []
        for name, given in peers.items():
            key = f"peer.{name}.address"
            try:
                family, address = _numeric(given, key)
            except ConfigError as error:
                problems += error.problems
                continue
            if family != self._family:
                problems.append(f"{key}: {given[0]} is of another family than limiter.listen")
            if address in by_address:
                problems.append(f"{key}: peer {by_address[address].name} has the same address")
            known = self._by_name.get(name) or _Peer(name, address, self._channel(name))
            by_name[name] = by_address[address] = known._replace(address=address)
        if problems:
            raise ConfigError(problems)
        undo = partial(self._set_peers, self._by_name, self._by_address)
        self._set_peers(by_name, by_address)
        return undo

    def _set_peers(self, by_name: dict[str, _Peer], by_address: dict[Address, _Peer]) -> None:
        self._by_name = by_name
        self._by_address = by_address
        for name in self.other_versions.keys() - by_name.keys():
            del self.other_versions[name]
        for name in self.refused_kinds.keys() - by_name.keys():
            del self.refused_kinds[name]

    def set_ring(self, ring: KeyRing) -> None:
        """Replace the keys; sessions stay."""
        self.ring = ring
        for peer in self._by_name.values():
            peer.channel.set_ring(ring)

    def send(self, peer: str, kind: int, body: Any) -> int | None:
        """Send a message to a known peer; count an error of the kernel.

        A peer without a session gets a HELLO instead. Returns the number of the message if it was
        sent and its kind is numbered, else None.
        """
        to = self._by_name[peer]
        datagram = to.channel.seal(kind, body)
        if datagram is None:
            self._send_hello(to, to.channel.greet(self._turn))
        elif self._send(to, datagram):
            if codec_of(kind).numbered:
                self.control_sent += 1
                return number_of(datagram)
            self.sent += len(body)
        return None

    def receive(self, deliver: Deliver, refused: Mapping[int, str] = MappingProxyType({})) -> None:
        """Deliver all pending messages, without waiting.

        `refused` are kinds that the owner does not take at present, with the reason to count. A new
        session is delivered as a HELLO with the body `Met`.

        It ends after as many bytes as the receive buffer holds, after those of `most_delivered`, or
        after `MAX_REFUSED` datagrams without effect (or `REFUSED_PER_PEER`). So a flood cannot keep
        the caller here.
        """
        self._turn += 1
        self._refused = 0
        self.drained = False
        left = self._pending_limit
        room = left if self._most_delivered is None else self._most_delivered
        most = max(MAX_REFUSED, REFUSED_PER_PEER * len(self._by_name))
        while left > 0 and room > 0:
            left -= _LEAST_CHARGE
            if self._refused >= most:
                self.floods += 1
                return
            try:
                datagram, source = self._socket.recvfrom(MAX_DATAGRAM + 1)
            except BlockingIOError:
                self.drained = True
                return
            except OSError as error:
                self.errors[_name(error)] += 1
                continue
            left -= len(datagram)
            peer = self._by_address.get(source[:2])
            if peer is None:
                self.refuse("address")
                continue
            try:
                opened = peer.channel.open_untrusted(datagram, self._turn, refused)
            except WireError as error:
                self.refuse(error.reason)
                if error.reason == "version":
                    self.other_versions[peer.name] = datagram[0] >> 4
                if error.reason in refused.values():
                    self.refused_kinds[peer.name] = datagram[0] & 15, error.reason
                answer = peer.channel.answer_refused(datagram, error.reason, self._turn)
                self._send_hello(peer, answer)
                continue
            self._count(opened)
            if self.other_versions:
                self.other_versions.pop(peer.name, None)
            if self.refused_kinds and not codec_of(opened.kind).numbered:
                self.refused_kinds.pop(peer.name, None)
            self._send_hello(peer, opened.answer)
            if opened.body is not None:
                room -= len(datagram)
                deliver(peer.name, opened.kind, opened.body)

    def refuse(self, reason: str) -> None:
        """Count a datagram, or one update of it, as without effect."""
        self.rejected[reason] += 1
        self._refused += 1

    def _count(self, opened: Opened) -> None:
        if opened.kind == Kind.HELLO:
            self.greetings += 1
            self.met += opened.body is not None
            # It may be a recording or have come late. It counts for the bound, not as refused.
            self._refused += opened.body is None
        elif codec_of(opened.kind).numbered:
            self.control_received += 1
        else:
            self.received += len(opened.body)

    def _send_hello(self, to: _Peer, datagram: bytes | None) -> None:
        if datagram is not None and self._send(to, datagram):
            self.handshakes += 1

    def _send(self, to: _Peer, datagram: bytes) -> bool:
        try:
            self._socket.sendto(datagram, to.address)
        except OSError as error:
            self.errors[_name(error)] += 1
            return False
        self.bytes_sent += len(datagram) + self._header_size
        return True

    def _channel(self, peer: str) -> Channel:
        """A channel with a new session, for a new peer."""
        self._openings += 1
        session = Session(End(self.life, self._openings), self._secret)
        return Channel(self._me, peer, session, self.ring)

    def close(self) -> None:
        """Close the socket; safe to call twice."""
        self._socket.close()


def _numeric(address: Address, key: str) -> tuple[socket.AddressFamily, Address]:
    """The family of an address, and the address in the kernel's notation.

    Raises:
        ConfigError: it is not an IP address; `key` names it.
    """
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    try:
        family, _, _, _, resolved = socket.getaddrinfo(
            *address, type=socket.SOCK_DGRAM, flags=flags
        )[0]
    except socket.gaierror:
        raise ConfigError([f"{key}: {address[0]!r} is not an IP address"]) from None
    return family, (str(resolved[0]), address[1])


def _bound(family: int, listen: Address) -> tuple[socket.socket, int]:
    """A socket at this address that does not block, and the most bytes that can be pending in it.

    Raises:
        OSError: the host refuses.
    """
    made = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    try:
        made.setblocking(False)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        pending_limit = _enlarge(made)
        made.bind(listen)
    except BaseException:
        made.close()
        raise
    return made, pending_limit


def _enlarge(sock: socket.socket) -> int:
    """Set the size of the receive buffer, above the host's maximum if allowed; return the size."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, RECEIVE_BUFFER)
    except PermissionError:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)


def _name(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, "unknown")
