"""Formats become groups of virtual arrays."""
