"""`hal completion`: the script with which a shell completes hal's commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.screen import Screen

VARIABLE = "_HAL_COMPLETE"


@command(
    "completion",
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
    """SHELL then completes hal's commands and options."""
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"there is no completion for {shell}")
    root = ctx.find_root().command
    for line in kind(root, {}, "hal", VARIABLE).source().splitlines():
        screen.line(line)
