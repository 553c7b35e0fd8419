"""Many files at once: each becomes a group of virtual arrays, and none is lost silently."""

from virtualstack.scanning.many import ScanResult, scan

__all__ = ["ScanResult", "scan"]
