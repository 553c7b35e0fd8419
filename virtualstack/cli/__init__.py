"""The command ``virtualstack``: one module for each family of commands. The entry point is `virtualstack.cli.start`.

Commands open, join, convert and change data only with public functions. Other imports serve two purposes. They read
properties of a dataset or file (refusals, groups, whether a target exists). Or they do what no public function does:
compare a cube with its files, and commit a dataset to an Icechunk repository by its path.
"""
