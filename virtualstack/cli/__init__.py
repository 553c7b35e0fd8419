"""The command ``virtualstack``: one module for each family of commands. The entry point is `virtualstack.cli.start`.

Commands open, join, convert and change data only with public functions. Other imports read facts of a dataset or file
(refusals, groups, whether a target exists), or do what has no public function: comparing a cube with its files, and
committing a dataset to an Icechunk repository by its path.
"""
