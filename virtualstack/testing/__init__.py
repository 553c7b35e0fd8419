"""Tools for tests of readers, writers and stores, also of plugins in other packages."""
