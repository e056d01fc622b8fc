"""The tables of the configuration that planes register: one line each."""

from __future__ import annotations

from drld.capture.registered.tables import PACKETS
from drld.config.section import Section

PLANES: tuple[Section, ...] = (PACKETS,)
