"""Answers in JSON that may hold any text: names of files and interfaces need not be UTF-8."""

from __future__ import annotations

import json
from typing import Any

from starlette import responses


class JSONResponse(responses.JSONResponse):
    """A JSON value; a byte that is no UTF-8 becomes an escape, as Python reads it (PEP 383)."""

    def render(self, content: Any) -> bytes:
        """The value as bytes."""
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode("utf-8", "backslashreplace")
