"""Scan of many files: each becomes a group of virtual arrays or a reported error."""

from virtualstack.scanning.many import ScanResult, scan

__all__ = ["ScanResult", "scan"]
