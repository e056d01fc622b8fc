"""What mypyc is told of a class (setup.py), for hosts that have no mypyc: there it does nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr
else:

    def mypyc_attr(**_):
        """Leave the class as it is: mypyc has read the decorator when it compiled."""
        return lambda cls: cls


__all__ = ["mypyc_attr"]
