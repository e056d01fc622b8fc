"""The sockets of brokers: opened, moved, kept by a service manager, and closed."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from drld.errors import ConfigError
from drld.messages.front.listeners import Listeners, NoKeeper
from drld.messages.spec import Address
from tests.local_daemons import ports


class Keeper(NoKeeper):
    """A service manager that keeps sockets."""

    def __init__(self, *passed: socket.socket) -> None:
        self.names: list[str] = []
        self._passed = passed

    def inherited(self) -> list[socket.socket]:
        return [*self._passed]

    def keep(self, name: str, sock: socket.socket) -> bool:
        self.names.append(name)
        return True

    def forget(self, name: str) -> None:
        self.names.remove(name)


def connects(address: Address) -> bool:
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    with socket.socket(family) as probe:
        return probe.connect_ex(address) == 0


def test_an_address_of_the_host_becomes_all_of_them_and_no_other_process_may_share_it() -> None:
    (port,) = ports(1, socket.SOCK_STREAM)
    one, every = ("127.0.0.1", port), ("0.0.0.0", port)
    listeners, others = Listeners(NoKeeper()), Listeners(NoKeeper())
    assert [*listeners.open([one])] == [one]
    assert [*listeners.open([every])] == [every]
    listeners.close([one])
    assert connects(one)
    with pytest.raises(ConfigError, match=r"broker\.listen: cannot bind"):
        others.open([every])
    listeners.release()
    assert not connects(one)


def test_an_address_that_cannot_be_bound_leaves_all_as_it_was() -> None:
    kept, free, taken = (("127.0.0.1", port) for port in ports(3, socket.SOCK_STREAM))
    listeners = Listeners(NoKeeper())
    listeners.open([kept])
    with socket.create_server(taken), pytest.raises(ConfigError):
        listeners.open([kept, free, taken])
    assert connects(kept)
    assert not connects(free)
    listeners.release()


def test_the_service_manager_forgets_what_is_closed_and_keeps_the_rest(tmp_path: Path) -> None:
    tcp = ("127.0.0.1", ports(1, socket.SOCK_STREAM)[0])
    unix = str(tmp_path / "broker.sock")
    keeper = Keeper()
    listeners = Listeners(keeper)
    listeners.open([tcp, unix])
    assert keeper.names == [f"127.0.0.1_{tcp[1]}", unix]
    listeners.close([unix])
    assert keeper.names == [f"127.0.0.1_{tcp[1]}"]
    assert not Path(unix).exists()
    listeners.release()
    assert keeper.names == [f"127.0.0.1_{tcp[1]}"]


def test_an_inherited_socket_of_an_address_that_is_gone_can_be_closed() -> None:
    passed = socket.create_server(("127.0.0.1", 0))
    address = passed.getsockname()
    keeper = Keeper(passed)
    keeper.names.append(f"127.0.0.1_{address[1]}")
    listeners = Listeners(keeper)
    assert listeners.others([]) == [address]
    listeners.close([address])
    assert keeper.names == []
    assert not connects(address)
