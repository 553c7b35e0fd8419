"""Compare values with the values that the formats' own libraries read: a whole cube, or a sample of chunks."""

from virtualstack.verify.files import Difference, Verification, verify_against_files
from virtualstack.verify.libraries import open_independently, require_library, values_differ

__all__ = [
    "Difference",
    "Verification",
    "open_independently",
    "require_library",
    "values_differ",
    "verify_against_files",
]
