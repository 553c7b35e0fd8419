"""Reading fields of a structure out of bytes, with the checks that every structure has."""

from __future__ import annotations

from numcodecs.jenkins import jenkins_lookup3

from virtualstack.formats.hdf5.structures.requests import StructureError

__all__ = ["check", "check_signature", "decode_text", "unsigned", "verified"]


def check(is_true: bool, what: str, /) -> None:
    """Raise `StructureError` unless a rule of the format holds; ``what`` is half a sentence on what is wrong."""
    if not is_true:
        raise StructureError(what)


def unsigned(body: bytes, at: int, width: int, /) -> int:
    """Read a little-endian number of ``width`` bytes; `StructureError` where the bytes end before it does."""
    if at + width > len(body):
        raise StructureError("a structure ends before its fields do")
    return int.from_bytes(body[at : at + width], "little")


def check_signature(body: bytes, signature: bytes, version: int, /) -> None:
    """Check the four letters that a structure begins with, and the version behind them."""
    if body[:4] != signature:
        raise StructureError(f"there is no '{signature.decode()}' where one should be")
    if body[4] != version:
        raise StructureError(f"version {body[4]} of '{signature.decode()}' is not known")


def verified(body: bytes, /) -> bytes:
    """Give a structure without the checksum at its end, after checking it.

    HDF5 spec: Jenkins' lookup3 of all bytes before it, in 4 bytes.
    """
    if len(body) < 4 or jenkins_lookup3(body[:-4], 0) != int.from_bytes(body[-4:], "little"):
        raise StructureError(f"the checksum of '{body[:4].decode('latin-1')}' is wrong")
    return body[:-4]


def decode_text(raw: bytes, /) -> str:
    """Read text as UTF-8, and as latin-1 where it is not, so that no letter is lost."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")
