"""Facts as JSON has them, and what a dry run would write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from virtualstack.storage.dry_run import DryRun


def plain(value: Any, /) -> Any:
    """Return a value as JSON has it: a table as a list of rows, a slice as its bounds, a time as ISO 8601, NaN as null.

    >>> plain({"box": slice(2, 5), "names": ("a", "b"), "at": float("nan")})
    {'box': [2, 5], 'names': ['a', 'b'], 'at': None}
    """
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None
    if isinstance(value, slice):
        return [value.start, value.stop]
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if hasattr(value, "to_dict") and hasattr(value, "columns"):
        return [plain(row) for row in value.astype(object).where(value.notna(), None).to_dict("records")]
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if hasattr(value, "tolist"):
        return plain(value.astype(str).tolist() if value.dtype.kind in "mM" else value.tolist())
    return str(value)


def iso_time(seconds: float, /) -> str:
    """Return seconds since 1970 as ISO 8601 in UTC.

    >>> iso_time(0.0)
    '1970-01-01T00:00:00+00:00'
    """
    return datetime.fromtimestamp(seconds, UTC).isoformat()


@contextmanager
def maybe_dry(is_dry: bool, /) -> Iterator[DryRun | None]:
    """Yield a dry run, which is active while the block runs; or ``None``, and the block writes."""
    if not is_dry:
        yield None
        return
    from virtualstack.storage.dry_run import dry_run

    with dry_run() as record:
        yield record


def dry_facts(record: DryRun | None, /) -> dict[str, int | None] | None:
    """Return what a dry run would write as facts, or ``None`` without a dry run."""
    if record is None:
        return None
    n_bytes = None if record.is_uncounted else record.n_bytes
    objects = None if record.is_uncounted else record.n_objects
    return {"objects": objects, "bytes": n_bytes, "deleted": len(record.deleted)}


def dry_text(record: DryRun, target: str, /) -> str:
    """Return what a dry run would write, for people."""
    from virtualstack.printable import counted
    from virtualstack.sizes import human_bytes

    if record.is_uncounted:
        return f"dry run: nothing is written. It would commit to '{target}'"
    if not record.n_objects and not record.deleted:
        return f"dry run: nothing would be written to '{target}'"
    size = f"{counted(record.n_objects, 'object')} of {human_bytes(record.n_bytes)}"
    gone = f", and delete {counted(len(record.deleted), 'object')}" if record.deleted else ""
    return f"dry run: nothing is written. It would write {size} to '{target}'{gone}"
