"""The objects of a vstack as bytes, by the rules of ``docs/reference/manifest-store.md``; no I/O."""
