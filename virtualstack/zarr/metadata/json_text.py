"""JSON of others, as Python parses it."""

from __future__ import annotations

import json
from typing import Any

from virtualstack.errors import MalformedFileError

__all__ = ["parse_json"]


def parse_json(text: str | bytes | bytearray, /, *, where: str) -> Any:
    """Parse JSON as Python does: with NaN.

    Raises
    ------
    MalformedFileError
        It is not JSON, or nested too deeply.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MalformedFileError(f"'{where}' is not JSON: {error}; write the references anew") from error
