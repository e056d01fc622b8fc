"""Every target under inputs that are nearly valid."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .targets import TARGETS
from .targets.base import Target


def mutated(target: Target) -> st.SearchStrategy[bytes]:
    """Valid inputs with some pieces exchanged, left out or added."""
    words = st.sampled_from(target.words) if target.words else st.nothing()

    @st.composite
    def draw(draw: st.DrawFn) -> bytes:
        data = draw(st.sampled_from(list(target.seeds())))
        for _ in range(draw(st.integers(1, 4))):
            start = draw(st.integers(0, len(data)))
            end = start + draw(st.integers(0, 12))
            data = data[:start] + draw(words | st.binary(max_size=6)) + data[end:]
        return data[: target.max_bytes]

    return draw()


@pytest.mark.parametrize("name", TARGETS)
@given(data=st.data())
def test_every_target_holds_for_nearly_valid_inputs(name: str, data: st.DataObject) -> None:
    target = TARGETS[name]
    target.check(data.draw(mutated(target)))


@pytest.mark.parametrize("name", TARGETS)
@given(data=st.binary(max_size=100))
def test_every_target_holds_for_any_bytes(name: str, data: bytes) -> None:
    TARGETS[name].check(data)
