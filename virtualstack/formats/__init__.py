"""Serialised forms of virtual datasets; no I/O of their own."""
