"""Questions of clients, in a query or in JSON, as requests.

Strangers may write them, so every part has a bound, and nothing is guessed. The server bounds the
size of the HTTP request (drld.control.connection).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

from drld.errors import InputError
from drld.requests import descriptor
from drld.requests.caller import MAX_CALLER_BYTES
from drld.requests.model import Request

MAX_CHECKS = 100
"""The most checks of one JSON text."""
MAX_AMOUNT = 2**31 - 1
"""The largest cost, and the largest size in bytes: the integers of Envoy's protocol."""
REFUSALS = (429, 403)
"""The statuses that a client may choose for a refusal: nginx passes 403 on, and not 429."""
_KEYS = ("namespace", "descriptor", "cost", "bytes", "caller", "at_least", "charge")
_MAX_DIGITS = 10


def of_query(query: bytes, caller: str) -> tuple[Request, int]:
    """Return the request of a query such as `namespace=api&user=alice&cost=3`, and its refusal.

    The refusal is the status of an answer that says no. All names but the reserved ones are names
    of the descriptor. `caller` is the caller if the query names none.

    Raises:
        InputError: the query is no question.
    """
    most = descriptor.MAX_PAIRS + len(descriptor.RESERVED)
    try:
        text = query.decode("ascii")
        pairs = parse_qsl(
            text, keep_blank_values=True, strict_parsing=True, errors="strict", max_num_fields=most
        )
    except ValueError:
        raise InputError(
            f"the query must have NAME=VALUE pairs in UTF-8, at most {most} of them"
        ) from None
    given = _unique(pairs)
    asked = {name: given.pop(name) for name in descriptor.RESERVED if name in given}
    if asked.get("refused", "429") not in map(str, REFUSALS):
        raise InputError("refused: must be 429 or 403")
    for name in ("cost", "bytes", "at_least"):
        if name in asked:
            asked[name] = _number(asked[name])
    if "charge" in asked:
        asked["charge"] = {"true": True, "false": False}.get(asked["charge"], asked["charge"])
    return _request(asked, given, caller), int(asked.get("refused", "429"))


def of_batch(parts: Sequence[str], amounts: Mapping[str, object], caller: str) -> Request:
    """Return the request of a question of the batch protocol.

    Args:
        parts: the namespace, the caller, and names and values by turns.
        amounts: `cost`, `bytes`, `at_least` and `charge`, as far as they are given.
        caller: the caller if the given one is empty.

    Raises:
        InputError: the question has a mistake.
    """
    asked = {"namespace": parts[0], "caller": parts[1] or caller, **amounts}
    return _request(asked, _unique(zip(parts[2::2], parts[3::2], strict=True)), caller)


def of_json(body: bytes, caller: str) -> tuple[list[Request], bool]:
    """Return the requests of a JSON object, or of an array of them, and whether it was an array.

    `caller` is as in `of_query`.

    Raises:
        InputError: the body is no question.
    """
    try:
        value = json.loads(body, object_pairs_hook=_unique, parse_constant=_no_number)
    except RecursionError:
        raise InputError("the body is nested too deeply") from None
    except ValueError:
        raise InputError("the body must be JSON in UTF-8") from None
    checks = value if isinstance(value, list) else [value]
    if not 1 <= len(checks) <= MAX_CHECKS:
        raise InputError(f"the body must have 1 to {MAX_CHECKS} checks")
    return [_check(check, caller) for check in checks], checks is value


def _check(check: object, caller: str) -> Request:
    if not isinstance(check, dict):
        raise InputError(f"a check must be an object with the keys {', '.join(_KEYS)}")
    for name in check:
        if name not in _KEYS:
            known = f"{', '.join(_KEYS)}; pairs go into descriptor"
            raise InputError(f"{descriptor.shown(name)}: unknown key; the keys are {known}")
    pairs = check.get("descriptor", {})
    if not isinstance(pairs, dict):
        raise InputError("descriptor: must be an object of texts")
    return _request(check, pairs, caller)


def _request(asked: dict[str, Any], pairs: dict[str, Any], caller: str) -> Request:
    namespace = asked.get("namespace")
    if not isinstance(namespace, str) or not namespace:
        raise InputError("namespace: is required, as a text")
    if len(namespace) > descriptor.MAX_BYTES:
        raise InputError("namespace: is too long")
    if not _is_utf8(namespace):
        raise InputError("namespace: must be text in UTF-8")
    size, least, charge = asked.get("bytes"), asked.get("at_least"), asked.get("charge", False)
    if not isinstance(charge, bool):
        raise InputError("charge: must be true or false")
    cost = _amount("cost", asked.get("cost", 1), 0)
    if least is not None and not cost:
        raise InputError("at_least: must not be given with cost 0, which takes nothing")
    if charge and least is not None:
        raise InputError("at_least: must not be given with charge, as a charge is never refused")
    if charge and not cost and size is None:
        raise InputError("charge: must have a cost of at least 1, or bytes")
    return Request(
        namespace,
        descriptor.check(pairs),
        cost,
        None if size is None else _amount("bytes", size, 1),
        # A proxy has an empty text for a client without a name.
        _caller(caller if asked.get("caller", "") == "" else asked["caller"]),
        None if least is None else _amount("at_least", least, 1, cost),
        charge,
    )


def _amount(name: str, value: object, least: int, most: int = MAX_AMOUNT) -> int:
    if type(value) is not int or not least <= value <= most:
        raise InputError(f"{name}: must be a whole number from {least} to {most}")
    return value


def _number(text: str) -> int | str:
    """Return a number of a query; a text that is none is returned as it is, and is an error."""
    whole = text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS
    return int(text) if whole else text


def _caller(value: object) -> str:
    if isinstance(value, str) and _is_utf8(value) and 1 <= len(value.encode()) <= MAX_CALLER_BYTES:
        return value
    raise InputError(f"caller: must be a text of 1 to {MAX_CALLER_BYTES} bytes")


def _is_utf8(text: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def _unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return pairs as a dictionary in which no name comes twice: programs differ in which they
    use."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise InputError(f"{descriptor.shown(name)}: must not be given twice")
        found[name] = value
    return found


def _no_number(_: str) -> None:
    raise InputError("a number must be finite")
