"""The `[[limit]]` of requests, and the readers of its values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator, ValidationInfo

from drld.burst import automatic_burst
from drld.config.fields import BurstOrAuto, Kind, Name, Rate, counted
from drld.config.overrides import AMOUNTS, table_of
from drld.config.problems import Location, PartsError, Problems, must_be
from drld.config.schema import LimitTable, Table
from drld.errors import InputError
from drld.policy import Keyed, Override
from drld.requests import descriptor
from drld.requests.quantity import BURST, RATE, parse_rate
from drld.requests.spec import ITEM, REQUESTS, Excess, RequestMatch
from drld.units import BYTES, QuantityError, Unit

PER = (
    f"an array of 1 to {descriptor.MAX_PAIRS} names of pairs, without repetitions, and neither "
    '"rate" nor "burst"'
)
MAX_KEYS = 10_000_000
"""The most keys of one limit at one limiter: some gigabytes."""
MAX_OVERRIDES = 10_000
_OF_KEYED = ("bucket", "max_keys", "overrides")
_OF_DIVIDED = ("allocator", "shares", "weights")
"""Keys of limits without `per`."""


def _rate(value: object, info: ValidationInfo) -> int:
    return _rate_of(info.data.get("unit"), value)


def _rate_of(unit: Unit | None, value: object) -> int:
    if unit == BYTES:
        return _of_bytes(Rate, value)
    try:
        return parse_rate(value if isinstance(value, str) else "")
    except QuantityError:
        raise ValueError(RATE) from None


def _burst(value: object, info: ValidationInfo) -> int | Literal["auto"]:
    return _burst_of(info.data.get("unit"), value)


def _burst_of(unit: Unit | None, value: object) -> int | Literal["auto"]:
    if value == "auto":
        return "auto"
    if unit == BYTES:
        return _of_bytes(BurstOrAuto, value)
    # `drlctl` has texts.
    number = int(value) if isinstance(value, str) and _is_number(value) else value
    if type(number) is not int or not ITEM <= number * ITEM <= REQUESTS.max_burst:
        raise ValueError(f'"auto", or {BURST}')
    return number * ITEM


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 7


def _of_bytes(kind: Any, value: object) -> int:
    """Read a value as limits on packets do."""
    validator = next(it for it in kind.__metadata__ if isinstance(it, PlainValidator))
    number: int = validator.func(value)  # type: ignore[call-arg]  # of one argument
    return number


def _where(value: object) -> dict[str, str]:
    if isinstance(value, str):  # `drlctl` has texts.
        pairs = [part.partition("=") for part in value.split(",")]
        value = {name: it for name, equals, it in pairs if equals}
        if len(value) < len(pairs):
            raise ValueError('a table of texts, or a text such as "plan=free,region=eu"')
    if not isinstance(value, dict):
        raise ValueError('a table of texts such as { plan = "free" }')
    if wrong := {name: "a text" for name, it in value.items() if not isinstance(it, str)}:
        raise PartsError(wrong)
    try:
        return dict(descriptor.check(value))
    except InputError as error:
        raise ValueError(f"a descriptor: {error}") from None


def _per(value: object) -> tuple[str, ...]:
    names = value.split(",") if isinstance(value, str) else value  # `drlctl` has texts.
    if not isinstance(names, list) or not all(isinstance(it, str) for it in names):
        raise ValueError(PER)
    if not 1 <= len(set(names)) == len(names) or {*names} & {*AMOUNTS}:
        raise ValueError(PER)
    try:
        descriptor.check(dict.fromkeys(names, ""))
    except InputError as error:
        raise ValueError(f"names of pairs: {error}") from None
    return tuple(names)


def _overrides(value: object) -> list[dict[str, Any]]:
    one = 'such as { user = "bigco", rate = "1000/s" }'
    if not isinstance(value, list):
        raise ValueError(f"an array of tables {one}")
    if len(value) > MAX_OVERRIDES:
        raise ValueError(f"an array of at most {MAX_OVERRIDES} tables")
    # `drlctl` has texts.
    tables = [table_of(it) if isinstance(it, str) else it for it in value]
    wrong = [index for index, it in enumerate(tables) if not isinstance(it, dict)]
    if wrong:
        claim = f'a table {one}, or a text such as "user=bigco,rate=1000/s"'
        raise PartsError(dict.fromkeys(wrong, claim))
    return [{**it} for it in tables if it is not None]


def _max_keys(value: object) -> int:
    if type(value) is not int or not 1 <= value <= MAX_KEYS:
        raise ValueError(f"a number of keys, from 1 to {MAX_KEYS}")
    return value


class RequestMatchTable(Table):
    """`match`: which requests fall under a limit.

    A request must meet every condition given (docs/requests.md).
    """

    namespace: Name
    """Namespace of the request."""
    where: Annotated[
        dict[str, str],
        PlainValidator(_where),
        Kind(f"table of texts, up to {descriptor.MAX_PAIRS} pairs"),
    ] = Field(default_factory=dict)
    """Pairs that the request's descriptor must have. Default: none."""
    per: Annotated[
        tuple[str, ...],
        PlainValidator(_per),
        Kind(f"name, or array of up to {descriptor.MAX_PAIRS} names"),
    ] = ()
    """Names of pairs; their values together are a key with its own bucket
    (docs/requests-per-user.md). Default: none."""


class RequestLimitTable(LimitTable):
    """Limits on requests.

    Further keys of a limit whose `match` has `namespace`. A request under several limits must pass
    all of them; otherwise none is charged.
    """

    unit: Annotated[
        Unit, PlainValidator(counted(REQUESTS, BYTES)), Kind('`"requests"` or `"bytes"`')
    ] = REQUESTS
    """Unit of `rate` and `burst`. With `"bytes"`, both are written as for packets, a request costs
    its stated size, and other limiters may apply the limit to packets. Default:
    `"requests"`."""
    rate: Annotated[
        int,
        PlainValidator(_rate),
        Kind("rate, `9/d` to `10000000/s`, per `s`, `min`, `h` or `d`"),
    ]
    """Rate that all limiters together may admit."""
    burst: Annotated[
        int | Literal["auto"],
        PlainValidator(_burst),
        Kind('`"auto"`, or number of requests, 1 to 1000000'),
    ] = "auto"
    """Depth of the one token bucket that the fleet emulates; `"auto"` is 0.25 s of the rate, and at
    least one request."""
    match: RequestMatchTable
    """Target: which requests fall under the limit
    ([below](#match-which-requests-fall-under-a-limit))."""
    on_failure: Literal["share", "open", "closed"] | None = None
    """Decision of clients while no limiter answers; each answer names it. Default: `"share"`."""
    excess: Literal["refuse"] = "refuse"
    """What happens above the limit."""
    bucket: Literal["ledger", "queue", "counter"] = "ledger"
    """With `match.per`: kind of the buckets; `"queue"` not for bytes."""
    max_keys: Annotated[
        int, PlainValidator(_max_keys), Kind(f"number of keys, 1 to {MAX_KEYS}")
    ] = 1_000_000
    """With `match.per`: most keys with their own buckets here."""
    overrides: Annotated[
        list[dict[str, Any]],
        PlainValidator(_overrides),
        Kind(f"array of up to {MAX_OVERRIDES} tables"),
    ] = Field(default_factory=list)
    """With `match.per`: rate or burst of single keys, such as
    `{ user = "bigco", rate = "1000/s" }`. Default: none."""

    def target(self) -> RequestMatch:
        """Return the target: the requests under the limit."""
        return RequestMatch(self.match.namespace, self.match.where, self.match.per)

    @property
    def default_allocator(self) -> str | None:
        """Return `static` for a limit with keys: limiters do not divide its rate."""
        return "static" if self.match.per else None

    def check(self, where: Location, problems: Problems) -> None:
        """Refuse a mix of keys for limits with `per` and keys for limits without it."""
        keyed = bool(self.match.per)
        for key in _OF_DIVIDED if keyed else _OF_KEYED:
            if key in self.model_fields_set:
                problems.add(
                    [*where, key],
                    "must be left out: a limit with match.per has a bucket for each key, and "
                    "nothing is divided" if keyed
                    else "must be left out: it is for limits with match.per",
                )  # fmt: skip
        if keyed and self.bucket == "queue" and self.unit == BYTES:
            # A queue keeps an element for each token: one request of 1 MB would take seconds.
            problems.add([*where, "bucket"], 'must not be "queue" for a limit on bytes')
        seen: dict[tuple[str, ...], int] = {}
        for place, given in enumerate(self.overrides if keyed else ()):
            at = [*where, "overrides", place]
            if (found := self._override(at, given, problems)) is None:
                continue
            if (other := seen.setdefault(found.key, place)) != place:
                problems.add(at, f"must be of a key of its own (overrides[{other}] is of the same)")

    def policy(self) -> Mapping[str, Any]:
        """Return the fate of the excess, and the buckets of the keys."""
        policy: dict[str, Any] = {"excess": Excess(self.excess)}
        if not self.match.per:
            return policy
        unheard = Problems("")
        overrides = (self._override([], given, unheard) for given in self.overrides)
        keyed = Keyed(self.bucket, self.max_keys, tuple(it for it in overrides if it))
        shared = {
            "match.per": ",".join(self.match.per),
            "bucket": keyed.bucket,
            "overrides": {
                "\0".join(it.key): {"rate": it.rate, "burst": it.burst} for it in keyed.overrides
            },
        }
        # The flows of the sample are keys, and not callers.
        return policy | {"keyed": keyed, "shared": shared, "flow": ",".join(self.match.per)}

    def _override(
        self, where: Location, given: Mapping[str, Any], problems: Problems
    ) -> Override | None:
        """Read one of `overrides`; None: it has a mistake, which is now in `problems`."""
        before = len(problems.lines)
        per = self.match.per
        key = tuple(str(given.get(name, "")) for name in per)
        for name in dict.fromkeys((*per, *given)):
            if name not in given:
                problems.add([*where, name], "is required: it is a name of match.per")
            elif name not in (*per, *AMOUNTS):
                problems.unknown(where, name, (*per, *AMOUNTS))
            elif name in per and not isinstance(given[name], str):
                problems.refuse([*where, name], given[name], "a text")
        amounts = self.rate, self._amount(self.rate, self.burst)
        if not {*AMOUNTS} & given.keys():
            problems.add(where, "must have rate or burst")
        try:
            rate = _rate_of(self.unit, given["rate"]) if "rate" in given else amounts[0]
        except ValueError as error:
            problems.add([*where, "rate"], must_be(str(error), given["rate"]))
            rate = amounts[0]
        try:
            burst = _burst_of(self.unit, given["burst"]) if "burst" in given else self.burst
        except ValueError as error:
            problems.add([*where, "burst"], must_be(str(error), given["burst"]))
            burst = amounts[1]
        if len(problems.lines) > before:
            return None
        return Override(key, rate, self._amount(rate, burst))

    def _amount(self, rate: int, burst: int | Literal["auto"]) -> int:
        return automatic_burst(rate, self.unit) if burst == "auto" else burst
