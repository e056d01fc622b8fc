"""How limiters tell one another what they want (docs/gossip.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drld.gossip.base import Fabric
from drld.gossip.mesh import Mesh
from drld.gossip.pushsum import PushSum
from drld.gossip.tree import Tree

FABRICS: Mapping[str, type[Fabric[Any]]] = {"mesh": Mesh, "pushsum": PushSum, "tree": Tree}
"""The fabrics by their name in the configuration."""
