"""Groups of nodes as Slurm writes them, with ` : ` between their options: `hal submit -c 2 : -N 4 -g 8 SCRIPT`."""

from __future__ import annotations

from typing import Any, Final

import click

from hal.cli.jobs.trailing_command import TrailingCommand

_KEY: Final = "hal.groups"
OF_GROUP: Final = ("nodes", "cpus", "memory", "gpus", "constraint")
"""Options that each group has for itself; all others are the job's, and stand before the first ` : `."""


class GroupedCommand(TrailingCommand):
    """Keeps the options of further groups apart, before click sees the words."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click's, for the options of the first group and the words behind those of the last."""
        end = args.index("--") if "--" in args else len(args)
        first, behind, found = args[:end], args[end:], []
        while ":" in first and not self._words(ctx, first[: first.index(":")])[1]:
            at = first.index(":")
            found.append(first[:at])
            first = first[at + 1 :]
        if not found:
            return super().parse_args(ctx, args)
        found.append(first)
        words = self._words(ctx, first)[1]
        ctx.meta[_KEY] = [self._group(ctx, part) for part in found[1:]]
        return super().parse_args(ctx, [*found[0], *words, *behind])

    def _words(self, ctx: click.Context, args: list[str]) -> tuple[dict[str, Any], list[str]]:
        """Options and other words of a part."""
        found, left, _ = self.make_parser(ctx).parse_args(args=list(args))
        options = dict(found)
        files = options.pop("files", ())
        return options, [*(files if isinstance(files, tuple) else ()), *left]

    def _group(self, ctx: click.Context, args: list[str]) -> dict[str, Any]:
        """The values of one group's options.

        Raises:
            click.UsageError: one of them is not a group's.
        """
        options, _ = self._words(ctx, args)
        by_name = {one.name: one for one in self.params if one.name is not None}
        for name in options:
            if name not in OF_GROUP:
                option = max(by_name[name].opts, key=len)
                raise click.UsageError(f"{option} is of the whole job: write it before the first ` : `", ctx)
        return {name: by_name[name].type_cast_value(ctx, value) for name, value in options.items()}


def with_groups(ctx: click.Context, given: dict[str, Any]) -> dict[str, Any]:
    """The values of `job_options` with a group of nodes for each part of a command line that has ` : `.

    Raises:
        click.UsageError: --group says others.
    """
    parts: Any = ctx.meta.get(_KEY)
    if parts is None:
        return given
    if given["group"]:
        raise click.UsageError("--group and ` : ` cannot be combined; write one of them", ctx)
    groups = []
    for place, part in enumerate([given, *parts]):
        group: dict[str, Any] = {"name": str(place)}
        for name in OF_GROUP:
            if part.get(name):
                group["constraints" if name == "constraint" else name] = part[name]
        if isinstance(group.get("nodes"), str):
            raise click.UsageError(f"--nodes: '{group['nodes']}' is a range; a group has a number of nodes", ctx)
        groups.append(group)
    return {**given, **dict.fromkeys(OF_GROUP, None), "constraint": (), "group": tuple(groups)}
