"""A page of Markdown, and how its blocks run: as a reader types them, from top to bottom, and nothing else.

- ``python`` blocks run one after the other in one namespace; a block that begins with ``>>>`` is a doctest.
- ``sh`` blocks are lines of ``virtualstack ...``, run by its ``main``. If a ``text`` block is next, its lines are lines
  of the output, in the same order. Numbers of bytes and offsets in it may differ, because compressors do.
- Other blocks (``text``, ``bash`` ...) are not run. The site's build runs ``{code-cell}`` blocks of notebooks.
- ``<!-- needs: module -->`` skips the page where the module is not installed.

``python -m tests.docs.page PAGE`` runs a page in the folder that one is in.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
CHANGES = ROOT / "docs" / "changes"
"""Fragments of the changelog, which are no pages."""
PAGES = [ROOT / "README.md", *sorted(x for x in (ROOT / "docs").rglob("*.md") if x.parent != CHANGES)]

_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, its text, and the line of the page that the text begins on."""

    language: str
    text: str
    line: int

    def run(self, namespace: dict[str, Any], path: Path) -> str:
        """Run it, if its language is one that runs, and return the output of commands."""
        if self.language == "sh":
            return self._run_commands()
        if self.language == "python" and self.text.startswith(">>>"):
            self._run_doctest(namespace, path)
        elif self.language == "python":
            # Empty lines in front let a traceback show the line of the page.
            exec(compile("\n" * (self.line - 1) + self.text, str(path), "exec"), namespace)
        return ""

    def check_output(self, output: str) -> None:
        """Check that each line of the block is a line of an output, in the same order."""
        lines = iter([_without_bytes(line) for line in output.splitlines()])
        for line in self.text.splitlines():
            if _without_bytes(line) not in lines:  # takes lines until it finds this one
                raise AssertionError(f"the output has no line '{line}' at this place:\n{output}")

    def _run_commands(self) -> str:
        from virtualstack.cli.command import main

        for command in self.text.replace("\\\n", " ").splitlines():
            program, *arguments = shlex.split(command)
            if program != "virtualstack":
                raise ValueError(
                    f"'{command}' is not a virtualstack command; blocks that do not run are 'bash' or 'text'"
                )
            with contextlib.redirect_stdout(io.StringIO()) as output:
                status = main(arguments)
            if status:
                raise RuntimeError(f"'{command}' exits with {status}")
        return output.getvalue()

    def _run_doctest(self, namespace: dict[str, Any], path: Path) -> None:
        test = doctest.DocTestParser().get_doctest(self.text, namespace, path.name, str(path), self.line - 1)
        test.globs = namespace  # get_doctest copies it
        report: list[str] = []
        doctest.DocTestRunner(optionflags=_FLAGS).run(test, out=report.append, clear_globs=False)
        if report:
            raise AssertionError("".join(report))


def blocks(text: str) -> Iterator[Block]:
    """Give the fenced blocks of a page."""
    for match in re.finditer(r"^```(\S*).*?\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield Block(match.group(1), match.group(2), text.count("\n", 0, match.start(2)) + 1)


def directives(text: str, name: str) -> list[str]:
    """Give the values of ``<!-- name: value -->``."""
    return re.findall(rf"^<!-- {name}: (\S+) -->$", text, re.MULTILINE)


def run(path: Path) -> None:
    """Run the blocks of a page in the folder that one is in."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    output = ""
    for block in blocks(path.read_text()):
        if block.language == "text" and output:
            block.check_output(output)
        output = block.run(namespace, path)


def _without_bytes(line: str) -> str:
    """Write numbers of bytes, such as 1,024, 0-1024 and 9.1 kB, and spaces, in one way."""
    return re.sub(r"\s+", " ", re.sub(r"\b\d{1,3}(,\d{3})+\b|\b\d+-\d{3,}\b|\b[\d.]+(?= [kMG]?B\b)", "N", line)).strip()


if __name__ == "__main__":
    run(Path(sys.argv[1]))
