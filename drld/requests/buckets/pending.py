"""The thesis' delta states: for each peer, the news that it has not been told (3.1).

News are merged by maximum. A peer is not told its own news. By default news are forgotten once they
are told, as in the thesis, so a lost message loses them until the entry changes again. With
`repeat_ns`, told news stay until the peer acknowledges their message, and are pending again after
that time. Repetition is harmless, since values are maxima. A peer that acknowledges nothing for
`MOST_REPEATS` does not have the limit, or has other settings. Its news are forgotten, and it is
told everything once it is heard.
"""

from __future__ import annotations

from collections.abc import Mapping

from drld.requests.buckets.bucket import Key, News

MOST_REPEATS = 50
"""The repeats in a row without an acknowledgement: at a loss of 40 % each way, one of 10 billion
such rows comes from loss alone."""
_NOTHING: tuple[int, Mapping[Key, News]] = 0, {}


class Pending:
    """The news for one peer."""

    __slots__ = ("_most", "_number", "_since_ns", "_told", "behind", "news", "repeat_ns")

    def __init__(self, repeat_ns: int | None = None, most: int | None = None) -> None:
        """Keep the news for one peer.

        Args:
            repeat_ns: the time after which unacknowledged news are told again; None: never.
            most: the most keys with pending news; None: there is no bound.
        """
        self._most = most
        self.behind = False
        """Whether there were too many news, or too many repeats, so that the peer must be told
        everything."""
        self.news: dict[Key, News] = {}
        self.repeat_ns = repeat_ns
        self._number = 0
        self._told: dict[int, tuple[int, Mapping[Key, News]]] = {}
        """The told news and their time, by the number of the message."""
        self._since_ns: int | None = None
        """The time of the first told news since the last acknowledgement; None: there are none."""

    @property
    def entries(self) -> int:
        """The number of pending entries of all keys."""
        return sum(map(len, self.news.values()))

    @property
    def settled(self) -> bool:
        """Whether the peer knows all news, as far as this limiter can know."""
        return not self.news and not self._told

    def add(self, key: Key, news: News) -> None:
        """Add news of a key."""
        if self.behind:
            return
        own = self.news.get(key)
        if own is None:
            self.news[key] = dict(news)
            if self._most is not None and len(self.news) > self._most:
                self._fall_behind()
            return
        for entry, value in news.items():
            if own.get(entry, -1) < value:
                own[entry] = value

    def has(self, key: Key, known: News) -> None:
        """Note that the peer has these entries of a key, with these values or larger ones."""
        own = self.news.get(key)
        if own is None:
            return
        for entry, value in known.items():
            if own.get(entry, value + 1) <= value:
                del own[entry]
        if not own:
            del self.news[key]

    def told(self, news: Mapping[Key, News], now_ns: int) -> int:
        """Note that these news go out now, and do not change any more; return the number of their
        message."""
        if self.news:
            for key, entries in news.items():
                self.has(key, entries)
        self._number += 1
        if self.repeat_ns is not None and not self.behind:
            self._told[self._number] = now_ns, news
            if self._since_ns is None:
                self._since_ns = now_ns
        return self._number

    def acknowledge(self, number: int) -> None:
        """Note that the peer has received this message."""
        self._since_ns = None
        self.forget(number)

    def forget(self, number: int) -> None:
        """Note that the news of this message no longer matter."""
        self._told.pop(number, None)

    def repeat(self, now_ns: int) -> None:
        """Make unacknowledged news pending again whose time has passed."""
        if self.repeat_ns is None:
            return
        if not self._told and not self.news:
            self._since_ns = None
        since_ns = self._since_ns
        if since_ns is not None and now_ns - since_ns > MOST_REPEATS * self.repeat_ns:
            self._fall_behind()
        overdue = [n for n, (told_ns, _) in self._told.items() if now_ns - told_ns > self.repeat_ns]
        for number in overdue:
            for key, news in self._told.pop(number, _NOTHING)[1].items():
                self.add(key, news)

    def _fall_behind(self) -> None:
        """Forget all news: the peer must be told everything."""
        self.behind, self._since_ns = True, None
        self.news.clear()
        self._told.clear()
