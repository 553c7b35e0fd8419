"""``virtualstack completion``: print the script with which a shell completes commands and options."""

from __future__ import annotations

import click

from virtualstack.cli.commands import command
from virtualstack.cli.output import write

COMPLETE_VARIABLE = "_VIRTUALSTACK_COMPLETE"
"""Environment variable by which a shell asks for the words that complete a command line."""


@command(
    "completion",
    examples=[
        """echo 'eval "$(virtualstack completion bash)"' >> ~/.bashrc""",
        """echo 'eval "$(virtualstack completion zsh)"' >> ~/.zshrc""",
        "virtualstack completion fish > ~/.config/fish/completions/virtualstack.fish",
    ],
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]), metavar="SHELL", help="bash, zsh or fish.")
def completion(shell: str) -> None:
    """Print a script that completes commands and options in a shell.

    The examples install it for new shells.
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    if found is not None:
        write(found(click.get_current_context().find_root().command, {}, "virtualstack", COMPLETE_VARIABLE).source())
