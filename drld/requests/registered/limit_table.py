"""`[[limit]]` whose `match` is about requests, and how its values are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator, ValidationInfo

from drld.config.fields import BurstOrAuto, Kind, Name, Rate, counted
from drld.config.schema import LimitTable, Table
from drld.errors import InputError
from drld.requests import descriptor
from drld.requests.quantity import BURST, RATE, parse_rate
from drld.requests.spec import ITEM, REQUESTS, Excess, RequestMatch
from drld.units import BYTES, QuantityError, Unit


def _rate(value: object, info: ValidationInfo) -> int:
    if info.data.get("unit") == BYTES:
        return _of_bytes(Rate, value)
    try:
        return parse_rate(value if isinstance(value, str) else "")
    except QuantityError:
        raise ValueError(RATE) from None


def _burst(value: object, info: ValidationInfo) -> int | Literal["auto"]:
    if value == "auto":
        return "auto"
    if info.data.get("unit") == BYTES:
        return _of_bytes(BurstOrAuto, value)
    # `drlctl` has texts.
    number = int(value) if isinstance(value, str) and _is_number(value) else value
    if type(number) is not int or not ITEM <= number * ITEM <= REQUESTS.max_burst:
        raise ValueError(f'"auto", or {BURST}')
    return number * ITEM


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 7


def _of_bytes(kind: Any, value: object) -> int:
    """A value as limits on packets have it."""
    validator = next(it for it in kind.__metadata__ if isinstance(it, PlainValidator))
    number: int = validator.func(value)  # type: ignore[call-arg]
    return number


def _where(value: object) -> dict[str, str]:
    if isinstance(value, str):  # `drlctl` has texts.
        pairs = [part.partition("=") for part in value.split(",")]
        value = {name: it for name, equals, it in pairs if equals}
        if len(value) < len(pairs):
            raise ValueError('a table of texts, or a text such as "plan=free,region=eu"')
    if not isinstance(value, dict):
        raise ValueError('a table of texts such as { plan = "free" }')
    try:
        return dict(descriptor.check(value))
    except InputError as error:
        raise ValueError(f"a descriptor: {error}") from None


def _later(_: object) -> None:
    raise ValueError("left out: limits with a bucket for each key are not available yet")


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
    per: Annotated[None, PlainValidator(_later)] = None


class RequestLimitTable(LimitTable):
    """Limits on requests.

    Further keys of a limit whose `match` has `namespace`. A request under several limits must pass
    all of them; otherwise none is charged.
    """

    unit: Annotated[
        Unit, PlainValidator(counted(REQUESTS, BYTES)), Kind('`"requests"` or `"bytes"`')
    ] = REQUESTS
    """What `rate` and `burst` count. With `"bytes"`, both are written as for packets, a request
    costs its stated size, and the limit may hold packets at other limiters. Default:
    `"requests"`."""
    rate: Annotated[
        int,
        PlainValidator(_rate),
        Kind("rate, `9/d` to `10000000/s`, per `s`, `min`, `h` or `d`"),
    ]
    """What all limiters together may admit."""
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
    """What a client is asked to do while no limiter answers; answers repeat it. Default:
    `"share"`."""
    excess: Literal["refuse"] = "refuse"
    """What happens above the limit."""

    def target(self) -> RequestMatch:
        """Which requests fall under the limit."""
        return RequestMatch(self.match.namespace, self.match.where)

    def policy(self) -> Mapping[str, Any]:
        """What becomes of the excess."""
        return {"excess": Excess(self.excess)}
