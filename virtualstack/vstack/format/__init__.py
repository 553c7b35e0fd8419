"""The objects of a vstack as bytes, by the rules of ``docs/reference/vstack.md``; no I/O."""
