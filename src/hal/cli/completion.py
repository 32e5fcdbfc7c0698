"""`hal completion`: the script that teaches a shell to complete hal's commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from hal.cli.command import command, pass_screen
from hal.cli.screen import Screen

VARIABLE = "_HAL_COMPLETE"


@command(
    "completion",
    short_help="Shell completion.",
    examples="""
    eval "$(hal completion bash)"                                  # in ~/.bashrc
    eval "$(hal completion zsh)"                                   # in ~/.zshrc
    hal completion fish > ~/.config/fish/completions/hal.fish
    """,
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@pass_screen
@click.pass_context
def completion(ctx: click.Context, screen: Screen, shell: str) -> None:
    """Print the script that completes hal's commands and options in SHELL."""
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"no completion for {shell}")
    root = ctx.find_root().command
    for line in kind(root, {}, "hal", VARIABLE).source().splitlines():
        screen.line(line)
