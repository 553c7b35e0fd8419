"""Icechunk repositories: reading, writing and adding to them."""
