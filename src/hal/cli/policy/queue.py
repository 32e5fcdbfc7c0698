"""`hal queue`: the queues in the policy."""

from __future__ import annotations

from collections.abc import Mapping

import click

from hal.cli.kit.command import HalCommand, pass_screen
from hal.cli.kit.screen import Screen
from hal.cli.policy.changes import show_change
from hal.cli.policy.entry_commands import noun
from hal.cli.policy.remarks import remark_on_one
from hal.client.rest import policy_calls
from hal.core.model.policy import PreemptMode, Queue
from hal.core.model.policy_change import Kind
from hal.core.model.policy_delegation import QueueState, state_of


def _row(entry: Queue) -> Mapping[str, str]:
    return {
        "state": state_of(entry),
        "priority": str(entry.priority or ""),
        "order": entry.order.value,
        "default": str(entry.default_walltime or ""),
        "max": str(entry.max_walltime or ""),
        "qos": ",".join(entry.qos) or entry.default_qos,
        "accounts": ",".join(entry.accounts),
        "users": ",".join(entry.users),
        "operators": ",".join(entry.operators),
        "hours": f"{'; '.join(entry.hours)} ({entry.zone})" if entry.hours else "",
        "preempts": ",".join(entry.preempts),
        "preempted by": "" if entry.preempt_mode is PreemptMode.OFF else entry.preempt_mode.value,
        "description": entry.description,
    }


queue = noun(
    Kind.QUEUE,
    Queue,
    _row,
    text="A queue sets who may use it, how long its jobs may run, and which of them start first.",
    examples="""
    hal queue add short --max-walltime 15m --priority 10
    hal queue set short --accounts physics,biology --dry-run
    hal queue set short --no-open        # accept no new jobs; those in it still run
    """,
    remark=remark_on_one,
)


def _into(word: str, state: QueueState, text: str) -> click.Command:
    @click.command(word, cls=HalCommand, output=True, examples=f"hal queue {word} short --note 'new disks'")
    @click.argument("name")
    @click.option("--note", metavar="TEXT", default="", help="Why, for the history.")
    @pass_screen
    def command(screen: Screen, name: str, note: str) -> None:
        show_change(screen, screen.client.call(policy_calls.set_queue_state(name, state, note=note)))

    command.help = text
    return command


for _word, _state, _text in (
    ("open", QueueState.OPEN, "Let a queue accept and start jobs.\n\nFor its operators and admins."),
    ("drain", QueueState.DRAINED, "Let a queue accept no new jobs.\n\nThose in it start and run."),
    ("close", QueueState.CLOSED, "Let a queue neither accept nor start jobs.\n\nThose that run continue."),
):
    queue.add_command(_into(_word, _state, _text))
