"""The gossip socket: encodes, tags, sends; receives, checks, decodes (a shell, no decisions).

One UDP socket, bound to the address that peers know this limiter by, so that they find it by the
source address. Nothing here blocks and nothing a peer or the network does is fatal: what cannot be
sent or does not belong is counted by reason. Whoever owns the socket drains it at the start of a
tick; until then the kernel keeps the datagrams, and the receive buffer is sized for that.
"""

from __future__ import annotations

import errno
import socket
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from drld.errors import ConfigError, WireError
from drld.gossip.auth import CONTROL, UPDATE, Tagger, session_secret
from drld.gossip.control_wire import (
    CONTROL_TAG_SIZE,
    Control,
    Hello,
    decode_control_untrusted,
    encode_control,
)
from drld.gossip.wire import (
    KIND_UPDATE,
    MAX_DATAGRAM,
    MAX_UPDATES,
    TAG_SIZE,
    decode_untrusted,
    encode,
    head_untrusted,
)
from drld.model import Update

RECEIVE_BUFFER = 4 << 20
"""Bytes asked for. The kernel charges about 768 for a single update: 5,000 between two ticks."""
_SMALLEST_CHARGE = 512
"""Bytes; no datagram takes less of the receive buffer."""
_HEADERS = {socket.AF_INET: 20 + 8, socket.AF_INET6: 40 + 8}
"""Bytes of the IP and UDP headers."""
_SO_RCVBUFFORCE = 33
"""Of Linux; the socket module does not know it."""

Address = tuple[str, int]


class _Direction:
    """The taggers of one direction."""

    def __init__(self, key: bytes, sender: str, receiver: str) -> None:
        secret = session_secret(key, sender, receiver)
        self.updates = Tagger(secret, UPDATE, TAG_SIZE)
        self.control = Tagger(secret, CONTROL, CONTROL_TAG_SIZE)


class _Peer(NamedTuple):
    name: str
    address: Address
    outgoing: _Direction
    incoming: _Direction


class Transport:
    """The updates of one limiter, to and from its peers."""

    def __init__(
        self, listen: Address, me: str, peers: Mapping[str, Address], key: bytes = b""
    ) -> None:
        """Bind the socket.

        Raises:
            ConfigError: an address is no IP address, or of another family than `listen`; two
                peers share one.
            OSError: `listen` cannot be bound.
        """
        self.rejected: Counter[str] = Counter()
        """Datagrams refused: `address` (of no peer), or the reason of the `WireError`."""
        self.errors: Counter[str] = Counter()
        """What the socket refused to send or receive, by the name of the error."""
        self.sent = 0
        self.received = 0
        """Updates handed out."""
        self.control_sent = 0
        self.control_received = 0
        """Control messages handed out."""
        self.bytes_sent = 0
        """Of IP packets."""
        self._me = me
        self._key = key
        self._by_name: dict[str, _Peer] = {}
        self._by_address: dict[Address, _Peer] = {}
        self._family, _ = _numeric(listen, "limiter.listen")
        self.update_peers(peers)
        self._header_size = _HEADERS[self._family]
        self._socket = socket.socket(self._family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        try:
            self._socket.setblocking(False)
            if self._family == socket.AF_INET6:
                self._socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            self._pending_limit = _enlarge(self._socket) // _SMALLEST_CHARGE
            self._socket.bind(listen)
        except BaseException:
            self._socket.close()
            raise

    @property
    def address(self) -> Address:
        """Where the socket is bound."""
        host, port = self._socket.getsockname()[:2]
        return host, port

    def update_peers(self, peers: Mapping[str, Address]) -> None:
        """Talk to these peers from now on (a reload).

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
                problems.append(f"{key}: {by_address[address].name} has the same one")
            by_name[name] = by_address[address] = _Peer(
                name,
                address,
                outgoing=_Direction(self._key, sender=self._me, receiver=name),
                incoming=_Direction(self._key, sender=name, receiver=self._me),
            )
        if problems:
            raise ConfigError(problems)
        self._by_name = by_name
        self._by_address = by_address

    def send(self, peer: str, updates: Sequence[Update]) -> None:
        """Send updates to a known peer, or count why the kernel would not."""
        to = self._by_name[peer]
        for start in range(0, len(updates), MAX_UPDATES):
            some = updates[start : start + MAX_UPDATES]
            if self._send(to, to.outgoing.updates.seal(b"".join(map(encode, some)))):
                self.sent += len(some)

    def send_control(self, peer: str, message: Control) -> None:
        """Send a control message to a known peer, or count why the kernel would not."""
        to = self._by_name[peer]
        if self._send(to, to.outgoing.control.seal(encode_control(message, 0, 0))):
            self.control_sent += 1

    def _send(self, to: _Peer, datagram: bytes) -> bool:
        try:
            self._socket.sendto(datagram, to.address)
        except OSError as error:
            self.errors[_name(error)] += 1
            return False
        self.bytes_sent += len(datagram) + self._header_size
        return True

    def receive(self) -> Iterator[tuple[str, Update | Control]]:
        """All messages that are pending, each with the name of its sender, without waiting.

        It ends after as many datagrams as the receive buffer can hold, so that a flood cannot
        keep the caller here.
        """
        for _ in range(self._pending_limit):
            try:
                datagram, source = self._socket.recvfrom(MAX_DATAGRAM + 1)
            except BlockingIOError:
                return
            except OSError as error:
                self.errors[_name(error)] += 1
                continue
            peer = self._by_address.get(source[:2])
            if peer is None:
                self.rejected["address"] += 1
                continue
            try:
                messages = self._open(peer, datagram)
            except WireError as error:
                self.rejected[error.reason] += 1
                continue
            for message in messages:
                yield peer.name, message

    def _open(self, peer: _Peer, datagram: bytes) -> Sequence[Update | Control]:
        kind, _ = head_untrusted(datagram)
        if kind == KIND_UPDATE:
            updates = decode_untrusted(datagram)
            peer.incoming.updates.check_untrusted(datagram)
            self.received += len(updates)
            return updates
        message, _ = decode_control_untrusted(datagram)
        peer.incoming.control.check_untrusted(datagram)
        if isinstance(message, Hello):
            raise WireError("kind", "there are no handshakes yet")
        self.control_received += 1
        return [message]

    def close(self) -> None:
        """Close the socket; safe to call twice."""
        self._socket.close()


def _numeric(address: Address, key: str) -> tuple[socket.AddressFamily, Address]:
    """The family of an address, and the address as the kernel will write it."""
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    try:
        family, _, _, _, resolved = socket.getaddrinfo(
            *address, type=socket.SOCK_DGRAM, flags=flags
        )[0]
    except socket.gaierror:
        raise ConfigError([f"{key}: {address[0]!r} is not an IP address"]) from None
    return family, (str(resolved[0]), address[1])


def _enlarge(sock: socket.socket) -> int:
    """Ask for the receive buffer, beyond the host's maximum if we may; return what we got."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, RECEIVE_BUFFER)
    except PermissionError:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)


def _name(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, "unknown")
