"""What Hypothesis draws for the conservative rule: what limiters want, and what happens to them."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from .schedules import EVENTS, Event

flows = st.lists(st.sampled_from([0, 1, 1, 2, 5, 30]), min_size=2, max_size=12)
events = st.lists(
    st.builds(
        Event,
        after=st.sampled_from([0, 1, 5, 10, 20, 40, 80]),
        what=st.sampled_from(EVENTS),
        who=st.integers(0, 11),
        whom=st.integers(0, 4095),
    ),
    min_size=1,
    max_size=6,
)
slow = settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
