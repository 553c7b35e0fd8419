"""Many files at once: each becomes a group of virtual arrays, and none is lost silently."""

from virtualstack.scanning.many import scan
from virtualstack.scanning.result import ScanResult

__all__ = ["ScanResult", "scan"]
