"""The options of `drlctl limit` for the messages that fall under a limit."""

from __future__ import annotations

OPTIONS: dict[str, tuple[str | None, str | None]] = {
    "broker": ("NAME,...", "Messages to these brokers."),
    "topic": ("FILTER", "Messages whose topic matches, in the broker's notation."),
    "client": ("id|user|address", "A bucket for each client, by this property."),
}
"""By key of `match`: the placeholder of its value in the help, and the help text."""
