"""Groups become references in an Icechunk repository."""

from virtualstack.writers.icechunk.write import write_icechunk

__all__ = ["write_icechunk"]
