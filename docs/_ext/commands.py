"""Usage, options and examples of commands, from the parser of the command line: ``:::{command} build``."""

from __future__ import annotations

import re

import click
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from virtualstack.cli.commands import MESSAGES
from virtualstack.cli.group import cli

_CODE = re.compile(r"--[a-z][a-z-]+|\b[a-z]+\.(?:vstack|icechunk|parq|json)\b|'virtualstack [^']*'")


def _markdown(text: str) -> str:
    """Return plain text as Markdown, with options, files and commands as code."""
    parts, end = [], 0
    for match in _CODE.finditer(text):
        parts += [_escaped(text[end : match.start()]), f"`{match[0].strip("'")}`"]
        end = match.end()
    return "".join([*parts, _escaped(text[end:])])


def _escaped(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>{}|])", r"\\\1", text)


class CommandDirective(SphinxDirective):
    """The help of a command. A command named ``all`` is what all commands share."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the parts of the help as they are on a terminal: usage, options by section, examples."""
        name = self.arguments[0]
        command = cli if name == "all" else cli.commands[name]
        shown: set[str] = self.env.__dict__.setdefault("virtualstack_commands", set())
        shown.add(name)
        lines = list(self._lines(name, command))
        node = nodes.container()
        self.state.nested_parse(StringList(lines, self.get_source_info()[0]), self.content_offset, node)
        return node.children

    def _lines(self, name: str, command: click.Command) -> list[str]:
        path = "virtualstack" if name == "all" else f"virtualstack {name}"
        context = click.Context(command, info_name=path)
        lines = [f":::{{program}} {path}", ":::", ""]
        if name != "all":
            lines += ["```text", f"{path} {' '.join(command.collect_usage_pieces(context))}", "```", ""]
        sections: dict[str, list[click.Option]] = {}
        for param in command.get_params(context):
            section = getattr(param, "section", "Options")
            if isinstance(param, click.Option) and not param.hidden and (name == "all") == (section == MESSAGES):
                sections.setdefault(section, []).append(param)
        for title, options in sections.items():
            lines += [f":::{{rubric}} {title}", ":::", ""] if len(sections) > 1 else []
            for option in options:
                lines += self._option(option, context)
        examples = getattr(command, "examples", ())
        if examples and name != "all":
            lines += [":::{rubric} Examples", ":::", "", "```bash", *examples, "```", ""]
        return lines

    def _option(self, option: click.Option, context: click.Context) -> list[str]:
        names, help_text = option.get_help_record(context) or ("", "")
        value = names.partition(", ")[2] or names
        value = value.partition(" ")[2]
        signature = ", ".join(f"{x} {value}".strip() for x in sorted(option.opts, key=len))
        return [f":::{{option}} {signature}", "", _markdown(help_text), ":::", ""]


def _merge(app: Sphinx, env: BuildEnvironment, docnames: list[str], other: BuildEnvironment) -> None:
    """Add what another process has shown that reads pages at the same time."""
    env.__dict__.setdefault("virtualstack_commands", set()).update(getattr(other, "virtualstack_commands", ()))


def _check(app: Sphinx, env: BuildEnvironment) -> None:
    for name in sorted({"all", *cli.commands} - getattr(env, "virtualstack_commands", set())):
        logging.getLogger(__name__).warning("docs/reference/cli.md has no ':::{command} %s'", name)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive, and a check that every command has its place."""
    app.add_directive("command", CommandDirective)
    app.connect("env-merge-info", _merge)
    app.connect("env-check-consistency", _check)
    return {"parallel_read_safe": True}
