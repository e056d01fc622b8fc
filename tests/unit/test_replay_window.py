"""Which control messages are accepted: in any order within the window, each once."""

import pytest

from drld.errors import WireError
from drld.gossip.wire.replay_window import WINDOW, ReplayWindow


def verdicts(*numbers: int) -> list[str]:
    window = ReplayWindow()
    said = []
    for number in numbers:
        try:
            window.check_untrusted(number)
            said.append("ok")
        except WireError as error:
            said.append(error.reason)
    return said


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ((0, 1, 2), ["ok", "ok", "ok"]),
        ((0, 0), ["ok", "replayed"]),
        ((5, 3, 4, 3, 5), ["ok", "ok", "ok", "replayed", "replayed"]),
        ((WINDOW - 1, 0), ["ok", "ok"]),
        ((WINDOW, 0), ["ok", "late"]),
        ((0, WINDOW - 1, 0), ["ok", "ok", "replayed"]),
        ((0, WINDOW, 0, 1), ["ok", "ok", "late", "ok"]),
        ((0, 10**6, 10**6 - 1, 0), ["ok", "ok", "ok", "late"]),
        ((2**32 - 1, 0, 2**32 - 1, 2**32 - 2), ["ok", "ok", "replayed", "ok"]),
    ],
)
def test_the_window_refuses_repeated_and_old_numbers(
    numbers: tuple[int, ...], expected: list[str]
) -> None:
    assert verdicts(*numbers) == expected
