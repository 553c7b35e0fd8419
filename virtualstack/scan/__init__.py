"""Many files at once: each becomes a group of virtual arrays, and none is lost silently."""

from virtualstack.scan.many import scan
from virtualstack.scan.result import ScanResult

__all__ = ["ScanResult", "scan"]
