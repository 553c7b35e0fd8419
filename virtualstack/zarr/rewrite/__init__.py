"""Chunks that a target takes as they are, and those that must be encoded again for it."""
