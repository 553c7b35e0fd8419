from importlib.util import find_spec

if find_spec("pyproj") and find_spec("eccodes"):
    import pyproj  # noqa: F401 - a process that loads eccodes before pyproj aborts at exit
