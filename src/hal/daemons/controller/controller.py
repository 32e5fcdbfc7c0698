"""The controller put together: store, plane, engine, loop, agents; and the API that REST and simulations call.

Runs on any Runtime: no clock, socket or thread of its own. REST is attached by `__main__` only.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Mapping
from functools import partial

from hal.core.engine.events import SharesLoaded
from hal.core.engine.policies import admit_named
from hal.core.model import HALError, NotFoundError
from hal.core.model.policy_delegation import keep_delegated
from hal.core.model.states import AWAY_NODE_STATES
from hal.daemons.controller.access.secret_keys import read_keys
from hal.daemons.controller.access.secrets import SecretBook
from hal.daemons.controller.access.tokens import TokenBook
from hal.daemons.controller.config import Config, reached, rest_url, serves_tls
from hal.daemons.controller.cycle.clock import Clock
from hal.daemons.controller.cycle.committer import Committer, OpenStore
from hal.daemons.controller.cycle.control_loop import ControlLoop
from hal.daemons.controller.cycle.engine import Engine
from hal.daemons.controller.cycle.flusher import Flusher
from hal.daemons.controller.cycle.plane_group import GroupChange, PlaneGroup
from hal.daemons.controller.cycle.policy_faults import PolicyFaults
from hal.daemons.controller.cycle.retention import Keeping
from hal.daemons.controller.cycle.share_memory import REMEMBER_EVERY_MS, SHARES, HoursMemory, from_text, to_text
from hal.daemons.controller.files.bundles import Bundles
from hal.daemons.controller.files.collected import Collected
from hal.daemons.controller.files.node_files import NodeFiles
from hal.daemons.controller.following.presence import Presence
from hal.daemons.controller.metrics.book import MetricsBook
from hal.daemons.controller.metrics.leader_views import LeaderViews
from hal.daemons.controller.metrics.slow_facts import SlowFacts
from hal.daemons.controller.nodes.admission import NodeAdmission
from hal.daemons.controller.nodes.agents import Agents
from hal.daemons.controller.service.controller_api import ControllerApi
from hal.daemons.controller.service.feed import Watchers
from hal.daemons.controller.service.parts import Parts
from hal.daemons.controller.service.reader_book import ReaderBook
from hal.daemons.controller.service.status import read_authority
from hal.daemons.controller.service.stream_relays import StreamRelays
from hal.daemons.controller.service.waiters import EndWaiters, JobWaiters, NodeWaiters
from hal.daemons.controller.startup.policy_start import TAKEN_IN, PolicyFile, PolicyStart, lost_by, policy_at_start
from hal.planes.joining import JoiningPlane
from hal.planes.periodic import PeriodicPlane
from hal.planes.tasks import Change, TaskPlane, job_row
from hal.runtime.interface import Address, Connection, Credentials, Listener, Runtime
from hal.runtime.started_service import StartedService
from hal.store import Committed, PutMeta, Store
from hal.wire.address import is_loopback
from hal.wire.agree import HELLO_TIMEOUT_MS
from hal.wire.frames.files import OpenFiles

LEASE_GRANTED = "node-lease-ms"
"""What the store keeps the longest lease under that a keeper may hold."""


class Controller:
    """One controller. `start` it, `await run()`; `stop` finishes what is in flight."""

    def __init__(
        self,
        runtime: Runtime,
        config: Config,
        open_store: OpenStore,
        presence: Presence | None = None,
        remark: Callable[[], str] = str,
        relay: StartedService | None = None,
        metrics: MetricsBook | None = None,
    ) -> None:
        """
        Args:
            metrics: those of this process, which outlive its leadership; None: new ones.
            relay: passes streams on between clients and nodes that cannot reach each other.
            presence: this controller's row in a store that several share.
            remark: what people should know of this process; '' for nothing.
        """
        self._runtime = runtime
        self._config = config
        self._metrics = metrics or MetricsBook()
        self._presence = presence
        self._clock = Clock(runtime)
        self._committer = Committer(runtime, open_store)
        faults = PolicyFaults(runtime.log)
        self._engine = Engine(config.engine, faults, runtime, self._metrics.slices)
        rules = tuple(admit_named(name) for name in config.admit)
        self._plane = TaskPlane(config.policy, self._engine, config.engine, rules, config.topology)
        self.planes = PlaneGroup(self._plane, runtime.log)
        """Further planes are attached before `start`."""
        joining = JoiningPlane()
        self.planes.attach(joining)
        periodic = PeriodicPlane()
        self.planes.attach(periodic)
        self._node_admission = NodeAdmission(
            runtime, self._clock, config, self._plane, self.planes.port(joining), lambda: self._loop.inbox
        )
        self._flusher = Flusher(runtime, self._committer, self._metrics.flushes)
        self._secrets = SecretBook()
        self._agents = Agents(
            runtime,
            self._clock,
            self._plane,
            self._committer,
            self._flusher,
            lambda: self._loop.inbox,
            self._node_admission,
            config.leases,
            self._secrets,
        )
        self._bundles = Bundles(runtime, config.files, self._live_bundles)
        self._collected = Collected(runtime, config.files)
        self._node_files = NodeFiles(runtime, self._plane, self._node_admission, self._bundles, self._collected)
        self._policy_file = PolicyFile(config.policy)
        self._waiters, self._watchers, self._node_waiters = JobWaiters(), Watchers(), NodeWaiters()
        self._ends, self._readers = EndWaiters(), ReaderBook()
        self._loop = ControlLoop(
            runtime,
            self._clock,
            self.planes,
            self._engine,
            self._committer,
            self._flusher,
            self,
            self._agents.lied,
            self._agents.faulted,
            self._metrics,
        )
        self._listener: Listener | None = None
        self._tokens = TokenBook()
        self._keeping: asyncio.Task[None] | None = None
        self._reporting: asyncio.Task[None] | None = None
        parts = Parts(
            runtime=runtime,
            clock=self._clock,
            plane=self._plane,
            engine=self._engine,
            committer=self._committer,
            flusher=self._flusher,
            agents=self._agents,
            node_admission=self._node_admission,
            periodic=self.planes.port(periodic),
            loop=self._loop,
            metrics=self._metrics,
            waiters=self._waiters,
            watchers=self._watchers,
            node_waiters=self._node_waiters,
            ends=self._ends,
            readers=self._readers,
            faults=faults,
            access=config.access,
            tokens=self._tokens,
            secrets=self._secrets,
            bundles=self._bundles,
            collected=self._collected,
            notifications=config.notifications,
            own_row=lambda: presence.row if presence is not None else None,
            serving=config.serving,
            relays=StreamRelays(relay, config.relay),
            runs_as=config.runs_as,
            reached=f"[{config.address}]" if ":" in config.address else config.address,
            rest=rest_url(config),
            topology=config.topology,
            remark=remark,
            policy_file=self._policy_file,
        )
        self.api = ControllerApi(parts, SlowFacts(runtime, config, self._metrics, lambda: self._committer.store))
        self._views = LeaderViews(parts, self._metrics, self.api.advice.ages_s, self.api.planes.up)

    # ── life ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def start(self, address: Address, credentials: Credentials | None = None, *, rest: str = "") -> None:
        """Lead, load what lives, and accept agents at `address`, and where `server.wire` says.

        Args:
            rest: where people reach this controller; kept with the lease, for followers.
        Raises:
            StoreBusy: another controller leads.
            StoreError: the store cannot be opened or led.
            ConflictError: another process serves that address.
        """
        wire = reached(self._config.wire, self._config.address)
        await self._committer.open(self._clock.now_ms(), rest=rest, wire=wire)
        self._keeping = self._runtime.spawn_task(self._keep_lease(), "keep-lease")
        if self._presence is not None:
            self._presence.set_epoch(self._committer.epoch)
            reporting = self._presence.keep_announcing(lambda: self._committer.store, lambda: self._committer.epoch)
            self._reporting = self._runtime.spawn_task(reporting, "report-presence")
        # All that is loaded lives on: looking for garbage while a million jobs are made only takes time.
        gc.disable()
        try:
            loaded = await self._runtime.run_blocking(partial(self._committer.store.load, in_columns=True))
            self._clock.not_before(loaded.now_ms)
            self._tokens.load(loaded.meta)
            await self._load_secrets(loaded.meta)
            policy = policy_at_start(loaded.policy, loaded.meta.get(TAKEN_IN), self._config.policy)
            events = self._plane.load(loaded, policy.policy)
            await self._loop.load_planes()
            events += self.planes.attached_events()
            hours = HoursMemory(loaded.meta)
            over = hours.over(self._clock.now_ms())
            self._engine.begin(events, self._clock.now_ms(), from_text(loaded.meta.get(SHARES)), hours)
        finally:
            gc.enable()
        granted_ms = int(loaded.meta.get(LEASE_GRANTED, 0))
        self._plane.set_addresses(_reached_at(self._config, self._runtime))
        self._plane.set_traced_share(self._config.traced_share)
        await self._begin(policy, over, granted_ms)
        self._agents.leases.count_from_election(self._plane.nodes, granted_ms)
        await self._agents.forgetting.load()
        self._listener = await self._runtime.listen(address, self._serve, credentials)
        self._readers.load(await self._runtime.run_blocking(self._committer.store.readers))
        await self._node_admission.open(self._serve)
        self._views.attach()
        self._runtime.log.info(
            "leading", epoch=self._committer.epoch, jobs=self._plane.live_count, nodes=len(loaded.nodes)
        )
        if (topology := self._config.topology) is not None:
            absent = sum(name not in self._plane.nodes for name in topology.places)
            self._runtime.log.info(
                "the topology was read", levels=topology.levels, domains=len(topology.domains), nodes_not_here=absent
            )

    async def _serve(self, connection: Connection) -> None:
        """Serve whoever dials: an agent, or the file service of a node."""
        first = await connection.receive(timeout_ms=HELLO_TIMEOUT_MS)
        if isinstance(first, OpenFiles):
            await self._node_files.serve(connection, first)
        else:
            await self._agents.serve(connection, first)

    async def _live_bundles(self) -> set[str]:
        return await self._committer.read(Store.live_bundles)

    async def _begin(self, policy: PolicyStart, over: list[str], granted_ms: int) -> None:
        """The first group: hal.toml where it was changed; and no node is up before it has dialled. `over`: facts to
        forget; `granted_ms`: the longest lease that an earlier controller may have given to a keeper."""
        now_ms = self._clock.now_ms()
        plane = self._plane
        for name, row in list(plane.nodes.items()):
            if row.state not in AWAY_NODE_STATES:
                plane.record_silence(name, "the controller was started again", now_ms, row.last_seen_ms)
        before = plane.policy.version
        if policy.take_in and before and lost_by(self._config.policy, plane.policy):
            self._policy_file.keep_out(policy.digest)
            self._runtime.log.warning(self._policy_file.warning(plane.policy))
        elif policy.take_in:
            plane.change_policy(keep_delegated(self._config.policy, plane.policy), None, now_ms, "hal.toml")
            plane.add_operations(PutMeta({TAKEN_IN: policy.digest}))
            if before:
                self._runtime.log.warning("the policy of hal.toml was imported", over_version=before)
        if over:
            plane.add_operations(PutMeta(dict.fromkeys(over)))
        if granted_ms < self._config.leases.node_ms:
            plane.add_operations(PutMeta({LEASE_GRANTED: str(self._config.leases.node_ms)}))
        plane.identify(self._runtime.new_id(), self._runtime.new_id() + self._runtime.new_id())
        plane.note_controller_start(self._committer.epoch)
        change = plane.seal(now_ms)
        committed = await self._committer.commit(change.operations, now_ms)
        await self._runtime.run_blocking(self._committer.store.flush)
        self._watchers.committed(change.operations, committed)
        self._ends.committed(committed)
        plane.keep()
        self._engine.feed(change.engine)

    async def _load_secrets(self, meta: Mapping[str, str]) -> None:
        """What is stored, and the keys to it. Without them HAL runs; starts that need them fail and say why."""
        self._secrets.load(meta)
        if len(self._secrets):
            try:
                self._secrets.ring = await self._runtime.run_blocking(
                    partial(read_keys, self._runtime.paths.secret_keys)
                )
            except HALError as error:
                self._runtime.log.error("the keys of secrets cannot be read", reason=str(error))
        if foreign := sorted(self._secrets.foreign_keys()):
            self._runtime.log.error("keys of stored secrets are missing here", ids=foreign)

    async def _keep_lease(self) -> None:
        self._loop.depose(
            await self._committer.lease.keep(lambda: self._committer.store, lambda: self._committer.epoch)
        )

    async def run(self) -> None:
        """Run until `stop`.

        Raises:
            StaleEpoch: another controller has taken over: `abandon` this one.
        """
        keeping = Keeping(self._runtime, self._clock, self._committer, self.api.jobs.removal, self._config.retention)
        trimming = self._runtime.spawn_task(keeping.run(), "retention")
        flushing = self._runtime.spawn_task(self._flusher.run(), "flush")
        remembering = self._runtime.spawn_task(self._remember_use(), "remember-use")
        positions = self._runtime.spawn_task(self.api.readers.keep_positions(), "keep-positions")
        outliving = self._runtime.spawn_task(self._outlive_leases(), "outlive-leases")
        notifying = self._runtime.spawn_task(self.api.notices.run(), "notify")
        submitting = self._runtime.spawn_task(self.api.periodic.submission.run(), "periodic-jobs")
        files = self._runtime.spawn_task(self.api.files.keep(), "keep-files")
        self.api.planes.begin()
        try:
            await self._loop.run()
            await self._flusher.drained()
        finally:
            trimming.cancel()
            remembering.cancel()
            positions.cancel()
            outliving.cancel()
            submitting.cancel()
            files.cancel()
            notifying.cancel()
            self.api.planes.close()
            flushing.cancel()
            self._engine.close()

    def stop(self) -> None:
        """Accept nothing more; `run` returns when the group in flight is finished."""
        self._loop.stop("the controller is stopping")
        self._watchers.close()
        self._ends.close()

    async def close(self) -> None:
        """Say goodbye to agents and let go of the store."""
        await self._agents.goodbye("the controller is stopping")
        await self._committer.resign()
        if self._presence is not None:
            await self._presence.leave(self._committer.store)
        await self._let_go()

    async def abandon(self) -> None:
        """End all connections without a message, after this controller was deposed."""
        self._watchers.close()
        self._ends.close()
        self._agents.drop_all()
        await self._let_go()

    async def _let_go(self) -> None:
        self._metrics.follow()
        for task in (self._keeping, self._reporting):
            if task is not None:
                task.cancel()
        if self._listener is not None:
            await self._listener.close()
        await self._node_admission.close()
        await self._committer.close()

    # ── effects ───────────────────────────────────────────────────────────────────────────────────────────────────

    def committed(self, change: GroupChange[Change]) -> None:
        """See `control_loop.Effects`."""
        self._agents.deliver(change.lead.orders)
        self._metrics.count_group(change.lead.figures)

    def flushed(self, change: GroupChange[Change], committed: Committed | None) -> None:
        """See `control_loop.Effects`."""
        tasks = change.lead
        self._agents.deliver_elsewhere(tasks.orders)
        # Not before the orders of this group and of those before it: a start among them may wait for a stamp.
        self._agents.leases.lost(tasks.lost)
        self._agents.acknowledge(tasks.orders)
        for job in tasks.ended:
            if self._waiters.wanted(job.id):
                self._waiters.ended(job_row(job))
        self._node_waiters.committed(change.operations)
        self.api.notices.committed(change.operations)
        if committed is not None:
            self._watchers.committed(change.operations, committed)
            self._ends.committed(committed)

    def awaited(self, change: GroupChange[Change]) -> bool:
        """See `control_loop.Effects`."""
        if self._agents.any_elsewhere(change.lead.orders) or self._node_waiters.wanted(change.operations):
            return True
        return any(self._waiters.wanted(job.id) for job in change.lead.ended)

    async def _remember_use(self) -> None:
        """Store from time to time what accounts have used."""
        kept: SharesLoaded | None = None
        while True:
            await self._runtime.sleep(REMEMBER_EVERY_MS)
            use = self._engine.settled_use()
            if use is None or not use.use or (kept is not None and use.use == kept.use):
                continue
            try:
                await self._loop.inbox.call(partial(self._keep_use, use))
            except HALError as error:
                self._runtime.log.warning("the use of accounts was not saved", reason=str(error))
            else:
                kept = use

    def _keep_use(self, use: SharesLoaded, now_ms: int) -> None:
        self._plane.add_operations(PutMeta({SHARES: to_text(use)}))

    async def _outlive_leases(self) -> None:
        """When T has passed since taking the leadership, only leases that this controller gave can hold."""
        leases = self._agents.leases
        if leases.lost_after_ms == self._config.leases.lost_after_ms:
            return
        await self._runtime.sleep(leases.lost_after_ms)
        text = str(self._config.leases.node_ms)
        self._loop.inbox.report_nowait(
            "", "leases outlived", lambda now_ms: self._plane.add_operations(PutMeta({LEASE_GRANTED: text}))
        )
        leases.outlived()


def _reached_at(config: Config, runtime: Runtime) -> dict[str, str]:
    """Variables that show steps where this HAL is reached from other machines over TLS; none: nowhere."""
    url = rest_url(config)
    if not url or config.tcp is None or not serves_tls(config) or is_loopback(config.tcp[0]):
        return {}
    variables = {"HAL_STEP_URL": url}
    if config.site_certificate is None:
        try:
            variables["HAL_STEP_FINGERPRINT"] = read_authority(runtime).fingerprint
        except NotFoundError:
            return {}
    return variables
