"""The command ``virtualstack``: one module a family of commands. It begins in `virtualstack.cli.start`.

Commands open, join, convert and change by public functions alone. What else they import says what stands in a
dataset or file (refusals, groups, whether a target is there), and what has no public function: comparing a cube with
its files, and committing a dataset to an Icechunk repository by its path.
"""
