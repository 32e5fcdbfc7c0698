"""The health of the controller, the authority to trust, and the list of controllers."""

from __future__ import annotations

from importlib import metadata

from msgspec import Struct

from hal.core.model import NodeState, NotFoundError, plural
from hal.daemons.controller.service.controllers import ControllersList, list_controllers
from hal.daemons.controller.service.notices.notices import Notices
from hal.daemons.controller.service.parts import Parts
from hal.runtime.authority import MAX_PEM_FILE_BYTES, authority_file, public_fingerprint
from hal.runtime.interface import Runtime
from hal.runtime.regular_files import read_regular
from hal.runtime.step_users import ROOT, Serving

LENDING = ("", Serving.ALL_AS_OWNER)
MAX_KEPT_SHOWN = 1_000
"""Entries kept against hal.toml that are listed."""
MAX_NAMED = 5
"""Accounts that a warning names."""
VERSION = metadata.version("hal-scheduler")


class Status:
    """Of the whole."""

    def __init__(self, parts: Parts, notices: Notices) -> None:
        self._parts = parts
        self._notices = notices

    def health(self) -> Health:
        """The health of the controller."""
        plane, loop = self._parts.plane, self._parts.loop
        jobs = {state.value: count for state, count in plane.tally_states().items()}
        nodes: dict[str, int] = {}
        for row in plane.nodes.values():
            nodes[row.state.value] = nodes.get(row.state.value, 0) + 1
        warnings = [f"nothing can be made durable: {loop.trouble}"] if loop.trouble else []
        warnings += [remark] if (remark := self._parts.remark()) else []
        warnings += [text] if (text := self._parts.policy_file.warning(plane.policy)) else []
        warnings += self._parts.faults.warnings(self._parts.engine.state.config)
        warnings += self._exposed()
        if dropped := self._notices.view(errors=False).dropped:
            warnings.append(f"{plural(dropped, 'notification')} dropped since the start; the controller's log says why")
        warnings += [f"node {row.name}: {note}" for row in plane.nodes.values() for note in row.notes]
        return Health(
            status="degraded" if loop.trouble else "ok",
            version=VERSION,
            epoch=self._parts.committer.epoch,
            pid=self._parts.runtime.pid,
            now_ms=self._parts.clock.now_ms(),
            jobs=jobs,
            nodes=nodes,
            lost_after_ms=self._parts.agents.leases.lost_after_ms,
            warnings=warnings,
            wire=self._parts.node_admission.wire,
            rest=self._parts.rest,
            store=self._parts.committer.store.location,
            policy_kept=self._parts.policy_file.lost(plane.policy)[:MAX_KEPT_SHOWN],
        )

    def _exposed(self) -> list[str]:
        """Whose account others get who may come in, or that their jobs are refused; nothing where each is itself."""
        access, runs_as, now_ms = self._parts.access, self._parts.runs_as, self._parts.clock.now_ms()
        if not runs_as or self._parts.serving is Serving.EACH_AS_ITSELF:
            return []
        ways = []
        if access.socket and (access.users or access.operators or access.admins):
            ways.append("every user in [access]")
        if any(token.live(now_ms) and token.user != runs_as for token in self._parts.tokens.all()):
            ways.append("every holder of a token")
        if self._parts.serving is Serving.OWNER_ONLY:
            return [f"only jobs of {runs_as} run here: of {' and '.join(ways)} they are refused"] if ways else []
        if not ways and access.run_as_owner and runs_as == ROOT:
            ways.append("every user who may submit")
        accounts = self._lent_accounts()
        return (
            [f"steps run as {', '.join(accounts)}: {' and '.join(ways)} gets that account"] if ways and accounts else []
        )

    def _lent_accounts(self) -> list[str]:
        """As whom everybody's steps run on some nodes: nodes may belong to others than their controller. Before there
        are any, and of nodes that do not say, it is the controller's account."""
        facts = [row.about.facts for row in self._parts.plane.nodes.values() if row.state is not NodeState.REMOVED]
        lent = {one.account if one.steps else self._parts.runs_as for one in facts if one.steps in LENDING}
        found = sorted(lent) if facts else [self._parts.runs_as]
        return found if len(found) <= MAX_NAMED else [*found[:MAX_NAMED], f"{len(found) - MAX_NAMED} others"]

    def authority(self) -> AuthorityView:
        """That of this HAL.

        Raises:
            NotFoundError: it has none.
        """
        return read_authority(self._parts.runtime)

    async def follower_hashes(self) -> frozenset[str]:
        """Of the secrets by which followers are known that pass requests on."""
        rows = await self._parts.committer.read(lambda store: store.controllers())
        return frozenset(row.secret_hash for row in rows if row.secret_hash)

    async def controllers(self) -> ControllersList:
        """All controllers that share the store, by name."""
        own = self._parts.own_row()
        return await self._parts.committer.read(lambda store: list_controllers(store, own))


def read_authority(runtime: Runtime) -> AuthorityView:
    """The authority of this HAL, for whoever has its fingerprint.

    Raises:
        NotFoundError: there is none.
    """
    try:
        certificate = read_regular(authority_file(runtime.paths.authority), MAX_PEM_FILE_BYTES, follow=True).decode()
    except FileNotFoundError:
        raise NotFoundError("this HAL has no authority: it serves neither TLS nor agents of other machines") from None
    return AuthorityView(certificate=certificate, fingerprint=public_fingerprint(certificate))


class AuthorityView(Struct, frozen=True, kw_only=True):
    """A HAL's own certificate authority."""

    certificate: str
    """PEM. It is public; trust it if it has the fingerprint that you were given."""
    fingerprint: str
    """`sha256:` and hex digits."""


class Health(Struct, frozen=True, kw_only=True):
    """The health of the controller."""

    status: str
    """`ok`; `degraded`: it reads, but nothing new can be made durable; `following`: another controller leads."""
    version: str
    epoch: int
    pid: int
    now_ms: int
    jobs: dict[str, int]
    """Live jobs by state."""
    nodes: dict[str, int]
    """Nodes by state."""
    lost_after_ms: int
    """So long after it was last heard a node has certainly ended tasks that say `on_node_lost: requeue`."""
    warnings: list[str]
    wire: str = ""
    """Where agents of other machines dial, `HOST:PORT`; empty: nowhere."""
    rest: str = ""
    """Where people reach this controller from elsewhere; empty: nowhere."""
    policy_kept: tuple[str, ...] = ()
    """Entries of the policy that a changed hal.toml would remove, and that are kept until somebody accepts that."""
    store: str = ""
    """The database, without its password; the file on SQLite."""
    leader: str = ""
    """Shown by a follower: who leads, and where."""
