"""Where things stand in etcd.

    /drld/FLEET/alive/NAME     with a lease: that limiter reached etcd lately, and what it applied
    /drld/FLEET/fleet          which registry this is: made once, at random
    /drld/FLEET/limits/ID      a limit, as a table of [[limit]]
    /drld/FLEET/members/NAME   a member, until it leaves or is removed
    /drld/FLEET/used/ID        an id that was given out to a limit, and is not given out again

What limiters follow, `fleet`, `limits/` and `members/`, is one range: one read gives a consistent
picture of it and one watch keeps it so. `alive/` stands outside, for each change of the
configuration changes all of it.
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
        """The range that limiters follow: its first key, and the first after it."""
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
        """Which registry this is."""
        return f"{self.prefix}fleet"

    def alive(self, member: str) -> str:
        """What a limiter says of itself while etcd hears from it."""
        return f"{self.prefix}alive/{member}"

    def member(self, name: str) -> str:
        """A member of the fleet."""
        return f"{self.prefix}members/{name}"

    def limit(self, limit_id: int) -> str:
        """A limit of the fleet."""
        return f"{self.prefix}limits/{limit_id}"

    def given_out(self, limit_id: int) -> str:
        """That a limit has or had this id."""
        return f"{self.prefix}used/{limit_id}"

    def member_of(self, key: str) -> str | None:
        """The name in a key of `members/`; None if it is none."""
        return self._rest(key, "members/", _NAME)

    def alive_of(self, key: str) -> str | None:
        """The name in a key of `alive/`; None if it is none."""
        return self._rest(key, "alive/", _NAME)

    def limit_of(self, key: str) -> int | None:
        """The id in a key of `limits/`; None if it is none."""
        return self._id(key, "limits/")

    def given_out_of(self, key: str) -> int | None:
        """The id in a key of `used/`; None if it is none."""
        return self._id(key, "used/")

    def by_weight(self, keys: Iterable[str]) -> list[str]:
        """What is to be told first: members, for everybody's share depends on them."""
        return sorted(keys, key=lambda key: (self.member_of(key) is None, key))

    def _id(self, key: str, folder: str) -> int | None:
        number = self._rest(key, folder, _ID)
        return int(number) if number and int(number) <= 65535 else None

    def _rest(self, key: str, folder: str, pattern: re.Pattern[str]) -> str | None:
        rest = key.removeprefix(self.prefix + folder)
        return rest if rest != key and pattern.fullmatch(rest) else None


def source(key: str) -> str:
    """How messages name a key of etcd."""
    return f"etcd {key}"
