"""The command ``virtualstack``: one module a family of commands. It begins in `virtualstack.cli.start`."""
