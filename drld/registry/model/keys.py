"""The keys in etcd.

    /drld/FLEET/alive/NAME     a limiter's report, with a lease: its address and applied revision
    /drld/FLEET/fleet          the registry's identity: random, made once
    /drld/FLEET/limits/ID      a limit, as a table of [[limit]]
    /drld/FLEET/members/NAME   a member, until it leaves or is removed
    /drld/FLEET/used/ID        an id that a limit has or had, and that is not given out again

Limiters follow `fleet`, `limits/` and `members/`. These are one range, so one read gives a
consistent state and one watch keeps it current. `alive/` is outside the range, as each change of
the configuration changes all of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

_ID = re.compile(r"[1-9][0-9]{0,4}", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one fleet."""

    name: str
    prefix: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "prefix", f"/drld/{self.name}/")

    @property
    def followed(self) -> tuple[str, str]:
        """The range that limiters follow: its first key, and the first key after it."""
        return self.fleet, f"{self.prefix}members0"

    @property
    def all_alive(self) -> tuple[str, str]:
        """The range of `alive`."""
        return self.alive(""), f"{self.prefix}alive0"

    @property
    def all_given_out(self) -> tuple[str, str]:
        """The range of `used`."""
        return f"{self.prefix}used/", f"{self.prefix}used0"

    @property
    def fleet(self) -> str:
        """The key of the registry's identity."""
        return f"{self.prefix}fleet"

    def alive(self, member: str) -> str:
        """The key of a limiter's report."""
        return f"{self.prefix}alive/{member}"

    def member(self, name: str) -> str:
        """The key of a member."""
        return f"{self.prefix}members/{name}"

    def limit(self, limit_id: int) -> str:
        """The key of a limit."""
        return f"{self.prefix}limits/{limit_id}"

    def given_out(self, limit_id: int) -> str:
        """The key that says that a limit has or had this id."""
        return f"{self.prefix}used/{limit_id}"

    def member_of(self, key: str) -> str | None:
        """The name in a key of `members/`; None for any other key."""
        return self._rest(key, "members/", _NAME)

    def alive_of(self, key: str) -> str | None:
        """The name in a key of `alive/`; None for any other key."""
        return self._rest(key, "alive/", _NAME)

    def limit_of(self, key: str) -> int | None:
        """The id in a key of `limits/`; None for any other key."""
        return self._id(key, "limits/")

    def given_out_of(self, key: str) -> int | None:
        """The id in a key of `used/`; None for any other key."""
        return self._id(key, "used/")

    def by_weight(self, keys: Iterable[str]) -> list[str]:
        """The keys by importance: members first, as every limiter's share depends on them."""
        return sorted(keys, key=lambda key: (self.member_of(key) is None, key))

    def _id(self, key: str, folder: str) -> int | None:
        number = self._rest(key, folder, _ID)
        return int(number) if number and int(number) <= 65535 else None

    def _rest(self, key: str, folder: str, pattern: re.Pattern[str]) -> str | None:
        rest = key.removeprefix(self.prefix + folder)
        return rest if rest != key and pattern.fullmatch(rest) else None


def source(key: str) -> str:
    """The name of a key of etcd in messages."""
    return f"etcd {key}"
