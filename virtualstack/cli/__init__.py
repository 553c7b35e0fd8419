"""The command ``virtualstack``: one module a family of commands."""

from virtualstack.cli.command import main

__all__ = ["main"]
