"""Code in processes of its own."""

import subprocess
import sys
from collections.abc import Mapping


def run_python(code: str, *arguments: object, timeout: float = 300, env: Mapping[str, str] | None = None) -> str:
    """Run code in a new process of Python, which has to end well, and return what it prints."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False, env=env)
    assert done.returncode == 0, (done.returncode, done.stdout[-1000:], done.stderr[-2000:])
    return done.stdout


def printed_values(code: str) -> dict[str, str]:
    """Return name and text of lines ``values NAME TEXT`` that code prints, even if its process crashes at its end."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    print(done.stderr[-1000:])
    return dict(line.split()[1:] for line in done.stdout.splitlines() if line.startswith("values"))
