"""Scan of sources: each becomes a group of virtual arrays or a reported error."""
