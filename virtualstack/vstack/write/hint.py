"""Write the hint of a store, after the commit and apart from it."""

from __future__ import annotations

from virtualstack.storage import ObjectStore
from virtualstack.vstack.format.history import hint, hinted, newest, snapshot_bytes
from virtualstack.vstack.format.names import HINT


def write_hint(objects: ObjectStore, number: int, data: bytes, /) -> None:
    """Write the hint, which carries a snapshot; the last of several concurrent writers leaves the newest snapshot."""
    while True:
        objects.target.put(HINT, hint(number, data))
        last = newest(objects)
        if last is None or last <= number:
            return
        number, data = last, snapshot_bytes(objects, last)


def follow(objects: ObjectStore, /) -> None:
    """Write the hint if a killed writer left that of an older snapshot, which may be deleted.

    A reader that takes it from the hint would not notice.
    """
    number = newest(objects)
    if number is not None and hinted(objects).get("snapshot") != number:
        write_hint(objects, number, snapshot_bytes(objects, number))
