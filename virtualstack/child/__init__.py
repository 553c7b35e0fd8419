"""Run C libraries that may crash or hang in child processes."""
