"""Commands and their help: groups of tasks, sections of options, and examples."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAliasType, get_args

import click

from virtualstack.cli.output import SETTINGS, heading, write

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

MESSAGES = "Messages"
"""Section of the options that every command has."""


class Option(click.Option):
    """An option that the help lists in a section.

    Parameters
    ----------
    section
        Heading in the help.
    """

    def __init__(self, *arguments: Any, section: str = "Options", **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.section = section


class Command(click.Command):
    """A command with options for its messages, and examples at the end of its help.

    Parameters
    ----------
    examples
        Command lines that a user can run.
    """

    def __init__(self, *arguments: Any, examples: Sequence[str] = (), **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.examples = tuple(examples)
        self.params += _SHARED

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Messages are written in its words from now on."""
        SETTINGS.command = self
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx  # the message names the command
            raise

    def get_help_option(self, ctx: click.Context) -> click.Option:
        """Return the option ``--help``."""
        return _HELP

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in their sections."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = None if isinstance(param, click.Argument) else param.get_help_record(ctx)
            if record is not None:
                sections.setdefault(getattr(param, "section", "Options"), []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        _write_examples(self.examples, formatter)


class Group(click.Group):
    """The command line: commands in groups of tasks.

    Parameters
    ----------
    tasks
        Commands by the heading of their group.
    examples
        Command lines that a user can run.
    """

    def __init__(
        self,
        *arguments: Any,
        tasks: Mapping[str, Iterable[click.Command]],
        examples: Sequence[str] = (),
        **settings: Any,
    ) -> None:
        settings["invoke_without_command"] = True  # which shows the help
        super().__init__(*arguments, **settings)
        self.tasks = {title: tuple(commands) for title, commands in tasks.items()}
        self.examples = tuple(examples)
        self.params += _SHARED
        for commands in self.tasks.values():
            for each in commands:
                self.add_command(each)

    def get_help_option(self, ctx: click.Context) -> click.Option:
        """Return the option ``--help``."""
        return _HELP

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands in groups of tasks."""
        width = max(map(len, self.commands))
        for title, commands in self.tasks.items():
            rows = [(f"{each.name}".ljust(width), each.get_short_help_str(200)) for each in commands]
            with formatter.section(title):
                formatter.write_dl(rows)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        _write_examples(self.examples, formatter)


def command(name: str, /, *, examples: Sequence[str], **settings: Any) -> Callable[[Callable[..., Any]], Command]:
    """Return a decorator that makes a command of a function; its docstring is the help.

    Parameters
    ----------
    name
        Name of the command.
    examples
        Command lines that a user can run.
    """
    return click.command(name, cls=Command, examples=examples, **settings)


def option(*names: str, section: str = "Options", **settings: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that adds an option, as :func:`click.option` does, in a section of the help."""
    return click.option(*names, cls=Option, section=section, **settings)


def choice(words: TypeAliasType, /) -> click.Choice[str]:
    """Return the type of an option that takes the words of :mod:`virtualstack.options`."""
    return click.Choice(get_args(words.__value__))


def complete_files(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete the name of a file; it is the ``shell_complete`` of arguments and options."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def complete_names(names: Callable[[], Iterable[str]], /) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Return a ``shell_complete`` that completes some names, which are found when they are needed."""
    return lambda _, __, incomplete: [name for name in names() if name.startswith(incomplete)]


class Formatter(click.HelpFormatter):
    """Formatter of help, with headings in bold letters on terminals, and lines of at most 100 characters."""

    def __init__(self, indent_increment: int = 2, width: int | None = None, max_width: int | None = None) -> None:
        super().__init__(indent_increment, width or _columns(), max_width)

    def write_heading(self, heading_text: str, /) -> None:
        """Write a heading."""
        super().write_heading(heading(heading_text))


class Context(click.Context):
    """Context that formats help with `Formatter`."""

    formatter_class = Formatter


Command.context_class = Group.context_class = Context


def _columns() -> int:
    """Return the width of help; click would import a compression library to know that of the terminal."""
    columns = os.environ.get("COLUMNS", "")
    if not columns.isdigit():
        try:
            columns = str(os.get_terminal_size(sys.stdout.fileno()).columns)
        except (OSError, ValueError, AttributeError):
            columns = "80"
    return max(min(int(columns), 102) - 2, 50)


def _help_option() -> click.Option:
    def show_help(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        if value and not ctx.resilient_parsing:
            write(f"{ctx.get_help()}\n")
            ctx.exit()

    return Option(
        ["-h", "--help"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=show_help,
        help="Show this help.",
        section=MESSAGES,
    )


def _message_options() -> list[click.Parameter]:
    def setter(name: str, level: int) -> Callable[[click.Context, click.Parameter, bool], None]:
        def set_it(ctx: click.Context, _: click.Parameter, value: bool) -> None:
            if value:
                setattr(SETTINGS, name, level)

        return set_it

    def flag(*names: str, setting: str, level: int, help: str) -> click.Option:
        return Option(
            names,
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=setter(setting, level),
            help=help,
            section=MESSAGES,
        )

    return [
        flag(
            "-q",
            "--quiet",
            setting="level",
            level=-1,
            help="Show errors and results only: no notes, warnings or progress.",
        ),
        flag("-v", "--verbose", setting="level", level=1, help="Show each step, and errors in full."),
        flag("--debug", setting="debug", level=True, help="Show the traceback of an error."),
    ]


def _write_examples(examples: Sequence[str], formatter: click.HelpFormatter) -> None:
    if examples:
        with formatter.section("Examples"):
            for each in examples:
                formatter.write(f"{'':>{formatter.current_indent}}{each}\n")


_HELP, _SHARED = _help_option(), _message_options()
"""Options of all commands: made once, as the start of the command makes all others."""
