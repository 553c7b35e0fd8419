"""Scan of many files: each becomes a group of virtual arrays or a reported error."""

from virtualstack.scanning.many import scan
from virtualstack.scanning.result import ScanResult

__all__ = ["ScanResult", "scan"]
