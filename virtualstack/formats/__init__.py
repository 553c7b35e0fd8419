"""File formats, one folder each, and the registry that detects which reader takes a source."""
