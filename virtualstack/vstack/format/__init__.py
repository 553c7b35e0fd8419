"""Encode and decode the objects of a vstack, by the rules of ``docs/reference/vstack.md``."""
