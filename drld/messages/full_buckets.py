"""From when on buckets are full, in arrays: of most messages, the gate need know no more.

A message that comes to a full bucket passes, and then the bucket lacks one message, whatever its
rate and depth are. So two numbers decide about the next message: the time at which the bucket is
full again, and how long the tokens of one message take. With 10,000 limits almost each line of
memory that is read costs a cache miss. A bucket is objects of several lines, and here it has 24
bytes.

A bucket (`WaitingBucket`) tells these numbers when some messages have found it full. When one finds
it not full, the bucket decides itself again.
"""

from __future__ import annotations

from array import array

NEVER_NS = 2**62
"""The time of a bucket that decides itself."""


class FullBuckets:
    """Buckets by their places, which are numbers from 0 on."""

    __slots__ = ("full_ns", "passed", "places", "refill_ns")

    def __init__(self) -> None:
        self.places: dict[object, int] = {}
        """The place of each bucket."""
        self.full_ns = array("q")
        """The time from which the bucket is full; or `NEVER_NS`."""
        self.refill_ns = array("q")
        """The time that the tokens of one message take, at most `NEVER_NS`."""
        self.passed = array("q")
        """The messages that have found the bucket full since it has last asked."""

    def add(self, bucket: object) -> int:
        """Return the place of one more bucket, which decides itself."""
        place = self.places[bucket] = len(self.full_ns)
        self.full_ns.append(NEVER_NS)
        self.refill_ns.append(0)
        self.passed.append(0)
        return place
