"""Files of any bytes."""

from pathlib import Path


def file_of(path: Path, data: bytes | bytearray) -> Path:
    """Write bytes to a path, whose folder is made, and return it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def replace_once(path: Path, old: bytes, new: bytes) -> None:
    """Replace bytes that a file has once."""
    data = path.read_bytes()
    assert data.count(old) == 1
    path.write_bytes(data.replace(old, new))


def overwrite(path: Path, at: int, new: bytes) -> None:
    """Put bytes in place of those at an offset of a file."""
    data = path.read_bytes()
    path.write_bytes(data[:at] + new + data[at + len(new) :])
