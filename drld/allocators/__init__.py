"""The allocators by name: rules that divide a rate among limiters (docs/allocators.md)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from drld.allocators.adaptive import Adaptive
from drld.allocators.base import Allocator
from drld.allocators.central import CentralTokenBucket
from drld.allocators.fair import Fair
from drld.allocators.fps import FlowProportionalShare, FlowProportionalShareRandomDrop
from drld.allocators.fps_paper import PapersFlowProportionalShare
from drld.allocators.grd import GlobalRandomDrop
from drld.allocators.gtb import GlobalTokenBucket
from drld.allocators.static import Static

DEFAULT_ALLOCATOR = "fair"
"""Allocator of a limit without the key; docs/configuration.md and the example name it, too."""
ALLOCATORS: Mapping[str, type[Allocator]] = MappingProxyType(
    {
        "ctb": CentralTokenBucket,
        "static": Static,
        "gtb": GlobalTokenBucket,
        "grd": GlobalRandomDrop,
        "fair": Fair,
        "fps": FlowProportionalShare,
        "fps-random-drop": FlowProportionalShareRandomDrop,
        "fps-paper": PapersFlowProportionalShare,
        "adaptive": Adaptive,
    }
)
