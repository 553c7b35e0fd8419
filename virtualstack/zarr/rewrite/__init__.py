"""Separate chunks that a target takes unchanged from chunks that must be re-encoded for it."""
