"""The program behind `hal top`: one list at a time, the cluster's sums above it, keys below."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input, Static

from hal.cli.kit import exit_codes
from hal.cli.kit.formats import span
from hal.cli.top.changes import Proposal, carry_out, propose_jobs, propose_nodes
from hal.cli.top.frame import header_lines
from hal.cli.top.job_texts import job_lines, node_lines, why_lines
from hal.cli.top.listings import JOBS, LISTINGS, NODES, SESSIONS, Filter, Listing, chosen_rows, next_order, read_filter
from hal.cli.top.reading import Contact, Reading
from hal.cli.top.row_table import RowTable
from hal.cli.top.windows import OutputWindow, Question, TextWindow
from hal.client.async_client import AsyncClient
from hal.client.rest import calls
from hal.client.rest.views import JobInfo
from hal.core.model import HALError
from hal.core.model.printable import printable

HELP: Final = """\
1 2 3 4      jobs, nodes, queues, sessions; Tab: the next
arrows, j k  move; PageUp, PageDown, Home, End as well
Enter        show the row in full
/            filter: words, and for jobs user=… state=… queue=… name=… account=… label=… node=…
             Escape takes the filter off
u            only my jobs, or everybody's again
e            ended jobs, too, or no more
s  S         sort by the next column; the other way round
Space        mark a row: the next action is about all that are marked
w            why the job waits
l            its output, followed
c            cancel   h  hold   r  release (jobs; each asks first)
d            drain    o  cordon   R  resume (nodes; for operators)
p            pause, and go on
q            quit

Running jobs come first, then waiting ones, the newest first. Of many, the newest are read, page by page:
filter to see others. Rights are the controller's: what you may not do, it refuses."""
KEYS: Final = {
    "jobs": "Enter w why l output c cancel h hold r release / filter s sort ? help q quit",
    "nodes": "Enter show  d drain  o cordon  R resume  / filter  s sort  ? help  q quit",
}
OTHER_KEYS: Final = "/ filter  s sort  ? help  q quit"
MESSAGE_S: Final = 10.0
"""How long a message stays."""


class TopApp(App[int]):
    """Refreshes itself about once a second; asks nothing while it is paused."""

    TITLE = "hal top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { layers: base; }
    #header { height: 3; width: 100%; }
    Static { text-wrap: nowrap; text-overflow: ellipsis; }
    #tabs, #message, #keys { height: 1; width: 100%; }
    #filter { height: 1; border: none; padding: 0; display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "leave", show=False),
        Binding("ctrl+c", "leave", show=False, priority=True),
        *(Binding(str(at + 1), f"list({at})", show=False) for at in range(len(LISTINGS))),
        Binding("tab", "list(-1)", show=False, priority=False),
        Binding("slash", "filter", show=False),
        Binding("escape", "clear", show=False),
        Binding("u", "mine", show=False),
        Binding("e", "ended", show=False),
        Binding("s", "sort", show=False),
        Binding("S", "reverse", show=False),
        Binding("p", "pause", show=False),
        Binding("enter", "open", show=False),
        Binding("w", "why", show=False),
        Binding("l", "output", show=False),
        Binding("c", "jobs('cancel')", show=False),
        Binding("h", "jobs('hold')", show=False),
        Binding("r", "jobs('release')", show=False),
        Binding("d", "nodes('drain')", show=False),
        Binding("o", "nodes('cordon')", show=False),
        Binding("R", "nodes('resume')", show=False),
        Binding("question_mark", "help", show=False),
    ]

    def __init__(
        self, client: AsyncClient, *, where: str, every_s: float, most_jobs: int, user: str, text: str
    ) -> None:
        """
        Args:
            where: the HAL, for people.
            every_s: between two rounds.
            most_jobs: jobs that are kept of each of: active, waiting, ended.
            user: who the caller is.
            text: the filter to begin with.
        """
        super().__init__(ansi_color=True)
        self.theme = "ansi-dark"
        self.animation_level = "none"
        self.reading = Reading(client, most_jobs)
        self.contact = Contact(every_s)
        self.listing: Listing = JOBS
        self.rounds = 0
        """Rounds that were answered."""
        self._client, self._where, self._user = client, where, user
        self._orders = {listing.name: listing.order for listing in LISTINGS}
        self._texts = dict.fromkeys((listing.name for listing in LISTINGS), "")
        self._texts[JOBS.name] = text
        self._mine = self._ended = self._paused = False
        self._message, self._message_until_s = "", 0.0
        self._soon = asyncio.Event()

    def compose(self) -> ComposeResult:
        """Header, tabs, list, message, filter, keys."""
        yield Static(id="header")
        yield Static(id="tabs")
        yield RowTable()
        yield Static(id="message")
        yield Input(id="filter", compact=True, placeholder="words, or user=alice state=running")
        yield Static(id="keys")

    def on_mount(self) -> None:
        """Begin to refresh; leave the terminal as it was whatever ends this program."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self.exit, 128 + number)
        self.query_one(RowTable).focus()
        self._ask()
        self._refresh_rounds()

    # ── rounds ────────────────────────────────────────────────────────────────────────────────────────────────────

    @work(exit_on_error=True)
    async def _refresh_rounds(self) -> None:
        """Ask, draw, wait; for ever."""
        while True:
            began_s = time.monotonic()
            if not self._paused:
                try:
                    await self.reading.round(self.listing)
                except HALError as error:
                    wait_s = self.contact.failed(error, began_s)
                else:
                    self.rounds += 1
                    wait_s = self.contact.answered(time.monotonic() - began_s)
            else:
                wait_s = 1.0
            self.draw()
            self._soon.clear()
            try:
                await asyncio.wait_for(self._soon.wait(), wait_s)
            except TimeoutError:
                continue

    def _ask(self) -> None:
        """Read what is listed now at once, not after the present wait."""
        wanted = self._filter()
        asked = dict(wanted.asked) | ({"user": self._user} if self._mine else {})
        self.reading.ask_for(Filter(asked, wanted.words), ended=self._ended)
        self._soon.set()

    def _filter(self) -> Filter:
        text = self._texts[self.listing.name]
        return read_filter(text) if self.listing is JOBS else Filter({}, tuple(text.lower().split()))

    def draw(self) -> None:
        """Show what is known."""
        if not self.is_running or not self.screen_stack:
            return
        main = self.screen_stack[0]
        listing, order = self.listing, self._orders[self.listing.name]
        now_ms = self.reading.now_ms
        rows = chosen_rows(listing, self.reading.rows(listing), self._filter().words, order, now_ms)
        table = main.query_one(RowTable)
        table.show(listing, rows, now_ms, order)
        main.query_one("#header", Static).update(_text("\n".join(header_lines(self.reading, self._where))))
        main.query_one("#tabs", Static).update(self._tabs(table, len(rows)))
        main.query_one("#message", Static).update(_text(self._said(), bold=bool(self.contact.error)))
        main.query_one("#keys", Static).update(_text(KEYS.get(listing.name, OTHER_KEYS), dim=True))

    def _tabs(self, table: RowTable, rows: int) -> Text:
        line = Text(no_wrap=True, overflow="crop")
        for number, listing in enumerate(LISTINGS, 1):
            line.append(f" {number} {listing.name} ", style="reverse" if listing is self.listing else "")
        at = f"{min(table.position + 1, rows):,} of {rows:,}"
        more = " (the newest)" if self.listing is JOBS and self.reading.cut else ""
        marked = f", {len(table.marked)} marked" if table.marked else ""
        line.append(f"  {at}{more}{marked}")
        if text := self._texts[self.listing.name]:
            line.append(f"  / {printable(text)}")
        for note, on in (("mine", self._mine), ("ended, too", self._ended)):
            if on and self.listing is JOBS:
                line.append(f"  [{note}]")
        if self._paused:
            line.append("  [paused]")
        return line

    def _said(self) -> str:
        if self.contact.error:
            gone_ms = round((time.monotonic() - self.contact.since_s) * 1000)
            return f"! trying again, no answer for {span(gone_ms)}: {self.contact.error}"
        return self._message if time.monotonic() < self._message_until_s else ""

    def say(self, text: str) -> None:
        """Show a message for some time."""
        self._message, self._message_until_s = text, time.monotonic() + MESSAGE_S
        self.draw()

    # ── what is listed ────────────────────────────────────────────────────────────────────────────────────────────

    def action_leave(self) -> None:
        """End, well."""
        self.exit(exit_codes.OK)

    def action_list(self, at: int) -> None:
        """Show another list; -1: the next one."""
        self.listing = LISTINGS[at if at >= 0 else (LISTINGS.index(self.listing) + 1) % len(LISTINGS)]
        self._ask()
        self.draw()

    def action_filter(self) -> None:
        """Type a filter."""
        typed = self.query_one("#filter", Input)
        typed.value = self._texts[self.listing.name]
        typed.display = True
        typed.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Use the filter."""
        self._texts[self.listing.name] = event.value.strip()
        self._close_filter()

    def action_clear(self) -> None:
        """Close the filter's line, or take the filter off."""
        if not self.query_one("#filter", Input).display:
            self._texts[self.listing.name] = ""
        self._close_filter()

    def _close_filter(self) -> None:
        self.query_one("#filter", Input).display = False
        self.query_one(RowTable).focus()
        self._ask()
        self.draw()

    def action_mine(self) -> None:
        """Only the caller's jobs, or everybody's again."""
        self._mine = not self._mine
        self._ask()

    def action_ended(self) -> None:
        """Ended jobs, too, or no more."""
        self._ended = not self._ended
        self._ask()

    def action_sort(self) -> None:
        """Sort by the next column."""
        self._orders[self.listing.name] = next_order(self.listing, self._orders[self.listing.name])
        self.draw()

    def action_reverse(self) -> None:
        """Sort the other way round."""
        order = self._orders[self.listing.name]
        self._orders[self.listing.name] = (
            order.removeprefix("-") if order.startswith("-") else f"-{order}" * bool(order)
        )
        self.draw()

    def action_pause(self) -> None:
        """Ask nothing more, or go on."""
        self._paused = not self._paused
        self._ask()

    # ── one row ───────────────────────────────────────────────────────────────────────────────────────────────────

    def action_help(self) -> None:
        """Show the keys."""
        self.push_screen(TextWindow("hal top: keys", HELP.splitlines()))

    @work
    async def action_open(self) -> None:
        """Show the row at the cursor in full."""
        row = self.query_one(RowTable).row
        if row is None:
            return
        try:
            if self.listing is JOBS:
                job = await self._client.call(calls.job(row.id, listed=True))
                await self.push_screen(TextWindow(f"job {job.id} {job.name}", job_lines(job, self.reading.now_ms)))
            elif self.listing is NODES:
                node = await self._client.call(calls.node(row.name))
                await self.push_screen(TextWindow(f"node {node.name}", node_lines(node)))
            else:
                self._list_jobs_of(row)
        except HALError as error:
            self.say(f"! {error.message}")

    def _list_jobs_of(self, row: Any) -> None:
        """Of a queue, or of a session."""
        named = f"label=hal/session={row.name}" if self.listing is SESSIONS else f"queue={row.name}"
        self._texts[JOBS.name] = named
        self.action_list(LISTINGS.index(JOBS))

    @work
    async def action_why(self) -> None:
        """Show why the job at the cursor waits."""
        job = self._job()
        if job is None:
            return
        try:
            answer = await self._client.call(calls.why(job.id))
        except HALError as error:
            self.say(f"! {error.message}")
            return
        await self.push_screen(TextWindow(f"why job {job.id} {job.name}", why_lines(answer)))

    @work
    async def action_output(self) -> None:
        """Follow the output of the job at the cursor: of an array that of its first task that runs."""
        job = self._job()
        if job is None:
            return
        task = 0
        if job.tasks > 1:
            try:
                page = await self._client.call(calls.tasks(job.id, state="running", limit=1))
            except HALError as error:
                self.say(f"! {error.message}")
                return
            task = page.items[0].task if page.items else 0
        await self.push_screen(OutputWindow(self._client, job.id, job.name, task))

    def _job(self) -> JobInfo | None:
        row = self.query_one(RowTable).row
        return row if self.listing is JOBS else None

    # ── changes ───────────────────────────────────────────────────────────────────────────────────────────────────

    @work
    async def action_jobs(self, verb: str) -> None:
        """Cancel, hold or release the jobs that are marked, or the one at the cursor."""
        if self.listing is JOBS and (keys := self._chosen()):
            try:
                await self._change(await propose_jobs(self._client, verb, keys))
            except HALError as error:
                self.say(f"! {error.message}")

    @work
    async def action_nodes(self, verb: str) -> None:
        """Drain, cordon or resume the nodes that are marked, or the one at the cursor."""
        if self.listing is NODES and (keys := self._chosen()):
            try:
                await self._change(await propose_nodes(self._client, verb, keys))
            except HALError as error:
                self.say(f"! {error.message}")

    def _chosen(self) -> Sequence[str]:
        table = self.query_one(RowTable)
        return sorted(table.marked) or ([table.key] if table.key else [])

    async def _change(self, proposal: Proposal) -> None:
        """Ask whether it is meant, and do it.

        Raises:
            HALError: nothing was changed.
        """
        if not proposal.ids:
            self.say(f"! {proposal.refused[0] if proposal.refused else 'nothing to do'}")
            return
        if not await self.push_screen_wait(Question(proposal.question)):
            return
        done = await carry_out(self._client, proposal)
        self.query_one(RowTable).marked.clear()
        self.say(f"{proposal.verb}: {done}")
        self._soon.set()


def _text(text: str, *, dim: bool = False, bold: bool = False) -> Text:
    return Text(printable(text, lines=True), no_wrap=True, overflow="ellipsis", style="dim" if dim else "bold" * bold)
