"""The fabrics: tree, mesh and push-sum bring limiters the sum of the others' demand for a limit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drld.gossip.fabrics.base import Fabric
from drld.gossip.fabrics.mesh import Mesh
from drld.gossip.fabrics.pushsum import PushSum
from drld.gossip.fabrics.tree import Tree

FABRICS: Mapping[str, type[Fabric[Any]]] = {"mesh": Mesh, "pushsum": PushSum, "tree": Tree}
"""The fabrics by their name in the configuration."""
