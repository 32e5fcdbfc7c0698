"""The endpoints about secrets: set, list, remove, change the key. None answers with a value."""

from __future__ import annotations

from typing import Final

from hal.core.model import DeniedError
from hal.daemons.controller.access.delegation import check_coordinates, has_own_rights
from hal.daemons.controller.access.secrets import OwnerKind, SecretId
from hal.daemons.controller.api.endpoints.delegation import DELEGATES
from hal.daemons.controller.api.endpoints.endpoint import TEXT, Endpoint, Param, body_of
from hal.daemons.controller.api.requests.call import Call
from hal.daemons.controller.api.requests.ownership import check_user
from hal.daemons.controller.service.access.secrets import KeyChange, SecretBody, SecretsList, SecretView
from hal.daemons.controller.service.controller_api import ControllerApi
from hal.rest.rights import ADMINS, OWNERS

_NAME: Final = Param(name="name", where="path", text="its name", schema=TEXT, example="db-password")
_ACCOUNT: Final = Param(name="account", where="path", text="name of a closed account", schema=TEXT, example="physics")
_BODY: Final = body_of(SecretBody, {"a password": {"value": "Y29ycmVjdCBob3JzZSBiYXR0ZXJ5IHN0YXBsZQ=="}})


async def list_secrets(api: ControllerApi, call: Call) -> object:
    """Those that the caller may use, or may set for an account; for operators and admins, all."""
    visit = call.visit
    if not visit.own_only:
        return api.secrets.all()
    return api.secrets.seen_by(visit.identity.user, coordinates=has_own_rights(visit.identity))


async def set_secret(api: ControllerApi, call: Call) -> object:
    """Create or replace one of the caller's own."""
    which = _own(call, call.visit.identity.user)
    asked: SecretBody = call.body
    return await api.secrets.set(which, asked.value, call.submitter)


async def remove_secret(api: ControllerApi, call: Call) -> object:
    """Remove a user's."""
    user = call.params.text("user")
    if call.visit.own_only:
        check_user(call.visit, user, "user")
    return await api.secrets.remove(_own(call, user or call.visit.identity.user))


async def set_account_secret(api: ControllerApi, call: Call) -> object:
    """Create or replace one of an account."""
    asked: SecretBody = call.body
    return await api.secrets.set(_of_account(api, call), asked.value, call.submitter)


async def remove_account_secret(api: ControllerApi, call: Call) -> object:
    """Remove an account's."""
    return await api.secrets.remove(_of_account(api, call))


async def rotate_key(api: ControllerApi, call: Call) -> object:
    """Store all under a new key."""
    return await api.secrets.rotate_key()


def _own(call: Call, user: str) -> SecretId:
    """
    Raises:
        DeniedError: a step asks.
    """
    if call.visit.identity.step:
        raise DeniedError("a job may use secrets, and may not change them", hint="change them from outside of jobs")
    return _noted(call, SecretId(OwnerKind.USER, user, call.path("name")))


def _of_account(api: ControllerApi, call: Call) -> SecretId:
    """
    Raises:
        DeniedError: the caller is no coordinator of the account.
    """
    account = call.path("account")
    check_coordinates(call.visit, api.policy.current, account)
    return _noted(call, SecretId(OwnerKind.ACCOUNT, account, call.path("name")))


def _noted(call: Call, which: SecretId) -> SecretId:
    call.visit.targets.append(str(which))
    return which


SECRETS: Final = (
    Endpoint(
        method="GET",
        path="/v1/secrets",
        handler=list_secrets,
        right=OWNERS,
        name="listSecrets",
        tag="access",
        summary="List secrets, without their values, by owner and name",
        text="A user sees those that their jobs may use: their own, and those of closed accounts that name them. "
        "A coordinator sees those of their accounts, too.",
        result=SecretsList,
    ),
    Endpoint(
        method="PUT",
        path="/v1/secrets/{name}",
        handler=set_secret,
        right=OWNERS,
        name="setSecret",
        tag="access",
        summary="Create or replace a secret of the caller",
        text="No request returns the value. Steps that have begun keep the value that they have.",
        params=(_NAME,),
        body=_BODY,
        result=SecretView,
        problems=("400", "413", "503"),
    ),
    Endpoint(
        method="DELETE",
        path="/v1/secrets/{name}",
        handler=remove_secret,
        right=OWNERS,
        name="removeSecret",
        tag="access",
        summary="Remove a secret of a user; later starts of jobs that name it fail",
        params=(_NAME, Param(name="user", text="whose it is; the caller's own when left out", schema=TEXT)),
        result=SecretView,
        problems=("404", "503"),
    ),
    Endpoint(
        method="PUT",
        path="/v1/accounts/{account}/secrets/{name}",
        handler=set_account_secret,
        right=DELEGATES,
        name="setAccountSecret",
        tag="access",
        summary="Create or replace a secret of a closed account, whose users' jobs in it may use it",
        text="For coordinators of the account and admins.",
        params=(_ACCOUNT, _NAME),
        body=_BODY,
        result=SecretView,
        problems=("400", "413", "503"),
    ),
    Endpoint(
        method="DELETE",
        path="/v1/accounts/{account}/secrets/{name}",
        handler=remove_account_secret,
        right=DELEGATES,
        name="removeAccountSecret",
        tag="access",
        summary="Remove a secret of an account; for its coordinators and admins",
        params=(_ACCOUNT, _NAME),
        result=SecretView,
        problems=("404", "503"),
    ),
    Endpoint(
        method="POST",
        path="/v1/secret-keys/rotate",
        handler=rotate_key,
        right=ADMINS,
        name="rotateSecretKey",
        tag="access",
        summary="Create a new key, and store every secret under it",
        result=KeyChange,
        problems=("403", "503"),
    ),
)
