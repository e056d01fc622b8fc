"""The figures and tables of the thesis on replicated token buckets (docs/replicated-buckets.md)."""

from __future__ import annotations

from testbed.reproduce.thesis import (
    faults,
    just_above,
    many_users,
    one_user,
    open_ends,
    overshoot,
    real_daemons,
    ten_users,
)

FIGURES = (
    ten_users.FIGURE,
    one_user.FIGURE,
    many_users.FIGURE,
    just_above.FIGURE,
    open_ends.FIGURE,
    faults.FIGURE,
    overshoot.FIGURE,
    real_daemons.FIGURE,
)
