"""docs/control-api.md names every key of every object, and every resource."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, get_type_hints, is_typeddict

import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from drld.control import schema
from drld.control.app import make_app
from drld.control.turns import Turns
from drld.planes.explanation import Explanation
from tests.control_fake import FakeDaemon

DOCUMENT = (Path(__file__).resolve().parents[3] / "docs" / "control-api.md").read_text()
MODULES = [import_module(it.name) for it in iter_modules(schema.__path__, f"{schema.__name__}.")]
SHAPES: list[Any] = [
    *dict.fromkeys(it for module in MODULES for it in vars(module).values() if is_typeddict(it)),
    Explanation,
]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_every_key_is_documented(shape: Any) -> None:
    assert get_type_hints(shape).keys() <= set(re.findall(r"`(\w+)`", DOCUMENT))


async def test_every_resource_is_documented() -> None:
    app = make_app(FakeDaemon(), Turns())
    assert isinstance(app, Starlette)
    routes = {
        (method, route.path.replace("{name}", "NAME").replace("{id:int}", "ID"))
        for route in app.routes
        if isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}
    }
    assert routes == set(re.findall(r"^\| `(GET|POST) ([^\s?`]+)", DOCUMENT, re.MULTILINE))
