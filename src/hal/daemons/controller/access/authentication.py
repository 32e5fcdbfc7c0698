"""Who asks a controller: the kernel names peers of Unix sockets, a token those of TCP, a follower those it passes on.

Pure apart from what it is given. Rights are another matter: `hal.rest.rights`.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final

from hal.core.model import DeniedError
from hal.daemons.controller.access.forwarded_identity import FOLLOWER, ForwardedIdentity
from hal.daemons.controller.access.group_cache import GroupCache
from hal.daemons.controller.access.settings import AccessSection
from hal.daemons.controller.access.step_credentials import StepCredentials, speaks_for_its_job
from hal.daemons.controller.access.tokens import Token, TokenBook
from hal.daemons.controller.api.errors import WAIT, NoLeaderError
from hal.rest.callers import LocalPeer, address_of, bearer, identifies_by_token, origin
from hal.rest.identity import HOME_TOKEN, Identity, UnauthorizedError
from hal.rest.rights import Role

ROOT_UID: Final = 0


class Authenticator:
    """Turns what a connection and its headers say into an identity: the controller's `Callers`."""

    def __init__(
        self,
        settings: AccessSection,
        book: TokenBook,
        *,
        owner: LocalPeer,
        home_token: str,
        now_ms: Callable[[], int],
        used: Callable[[Token], None],
        steps: StepCredentials,
        forwarded: ForwardedIdentity | None = None,
        groups: GroupCache | None = None,
    ) -> None:
        """
        Args:
            owner: who started this HAL.
            home_token: text of HAL_HOME/token; empty: there is none.
            used: called at every use of a token.
            steps: knows the steps that ask.
            forwarded: knows the followers; None: this controller does not lead.
            groups: knows the groups of this machine's users; None: they have none.
        """
        self._forwarded = forwarded
        self._groups = groups
        self._settings = settings
        self._book = book
        self._owner = owner
        self._home_token = home_token.encode()
        self._now_ms = now_ms
        self._used = used
        self._steps = steps

    def local(self, peer: LocalPeer, headers: Mapping[bytes, bytes], groups: Collection[str] = ()) -> Identity:
        """Who is at a Unix socket: what a step runs is its submitter's, also where it runs as HAL's owner.

        Where the kernel says that it is the submitter's process, or the owner's, a step has its user's rights. A token
        in other hands counts only for its job.

        Raises:
            DeniedError: nobody whom hal.toml names.
            UnauthorizedError: a step that has ended.
        """
        where = f"uid {peer.uid}"
        step = self._steps.shown(bearer(headers), where)
        if step is None and peer.attempt:
            step = self._steps.identity(peer.attempt, where)
        if step is not None:
            known = peer.uid in (ROOT_UID, self._owner.uid) or step.user == peer.user
            return step if known else speaks_for_its_job(step)
        if peer.uid in (ROOT_UID, self._owner.uid):
            return Identity(user=peer.user, role=Role.ADMIN, peer=where, inside=True)
        role = None if peer.private or peer.for_steps else self._settings.role_of(peer.user, groups)
        if role is None:
            raise DeniedError(
                f"user '{peer.user}' has no role on this HAL",
                hint=f"ask {self._owner.user} to name you, or one of your groups, under [access] in hal.toml",
            )
        return Identity(user=peer.user, role=role, peer=where)

    def remote(self, headers: Mapping[bytes, bytes], peer: str) -> Identity:
        """Who shows a token over TCP.

        Raises:
            UnauthorizedError: no token, or one that opens nothing; says which.
        """
        text = bearer(headers)
        if not text:
            raise _refused("a bearer token is needed")
        step = self._steps.shown(text, peer)
        if step is not None:
            return speaks_for_its_job(step)
        if self._home_token and hmac.compare_digest(text.encode(), self._home_token):
            return Identity(user=self._owner.user, role=Role.ADMIN, peer=peer, token=HOME_TOKEN, inside=True)
        token = self._book.shown(text)
        if token is None:
            raise _refused("the bearer token is wrong")
        if token.revoked_ms is not None:
            raise _refused(f"token {token.id} was revoked")
        if not token.live(self._now_ms()):
            raise _refused(f"token {token.id} has expired")
        self._used(token)
        return Identity(
            user=token.user,
            role=token.role,
            peer=peer,
            token=token.id,
            scope=token.scope,
            expires_ms=token.expires_ms,
        )

    async def identify(self, state: Mapping[str, Any], headers: Mapping[bytes, bytes], client: Any) -> Identity:
        """See `Callers`.

        Raises: as `local`, `remote` and `ForwardedIdentity.identity`.
            NoLeaderError: a follower passed it on to a controller that does not lead.
        """
        if FOLLOWER in headers:
            if self._forwarded is None:
                raise NoLeaderError("another follower forwarded this to a controller that does not lead", hint=WAIT)
            return await self._forwarded.identity(headers)
        peer: LocalPeer | None = state.get("peer")
        if peer is None or identifies_by_token(headers):
            return self.remote(headers, origin(state, client))
        return self.local(peer, headers, await self._groups_of(peer))

    async def _groups_of(self, peer: LocalPeer) -> Collection[str]:
        """Whoever has a right without them is not asked about."""
        declared = self._settings.groups.declared and not peer.private and not peer.for_steps
        if self._groups is None or not declared or peer.uid in (ROOT_UID, self._owner.uid):
            return ()
        return await self._groups.of(peer.user)

    def is_relay(self, headers: Mapping[bytes, bytes]) -> bool:
        """See `Callers`: a follower's."""
        return FOLLOWER in headers

    def still_opens(self, identity: Identity) -> bool:
        """Whether the credentials that were shown are still valid."""
        if identity.step:
            return self._steps.lives(identity.step)
        if not identity.token or identity.token == HOME_TOKEN:
            return True
        token = self._book.get(identity.token)
        return token is not None and token.live(self._now_ms())

    def watching(self, identity: Identity, changed: Callable[[], None]) -> AbstractContextManager[None]:
        """As `TokenBook.watched`, for whichever token."""
        return self._book.watched(changed)

    def stranger(self, state: Mapping[str, Any], client: Any) -> Identity:
        """Whoever asks for what is open to all: nobody, with the least role; on a Unix socket whom the kernel names."""
        peer: LocalPeer | None = state.get("peer")
        if peer is not None:
            try:
                return self.local(peer, {})
            except DeniedError:
                if peer.for_steps:
                    raise
                return Identity(user="", role=Role.USER, peer=f"uid {peer.uid}")
        return Identity(user="", role=Role.USER, peer=address_of(client))


def _refused(why: str) -> UnauthorizedError:
    return UnauthorizedError(
        why,
        hint="admins make one with `hal api-token create`, the owner's is in HAL_HOME/token; use it with `hal login`",
    )
