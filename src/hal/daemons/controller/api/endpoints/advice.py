"""The endpoints about advice: what planes report for policies to read."""

from __future__ import annotations

from typing import Any, Final

from hal.core.model.advice import MAX_KEYS_A_REQUEST, check_kind
from hal.daemons.controller.api.requests.call import Call
from hal.daemons.controller.service.advice.views import (
    AdviceBody,
    AdviceColumns,
    AdviceList,
    AdvicePut,
    AdviceView,
    Update,
    update_of,
)
from hal.daemons.controller.service.controller_api import ControllerApi
from hal.rest.body_columns import body_with_columns
from hal.rest.endpoint import CURSOR, Body, Endpoint, Param, ref
from hal.rest.rights import OPERATORS

DEFAULT_KEYS: Final = 1_000
MAX_KEYS_A_PAGE: Final = 10_000
MAX_ENTRIES: Final = 2 * MAX_KEYS_A_REQUEST + 100
"""Of a body: keys, values, and the other fields."""


async def list_advice(api: ControllerApi, call: Call) -> object:
    """Return the kinds that are held."""
    return AdviceList(advice=api.advice.all())


async def get_advice(api: ControllerApi, call: Call) -> object:
    """Return a kind with a page of its keys and values."""
    limit = call.params.integer("limit", DEFAULT_KEYS, low=1, high=MAX_KEYS_A_PAGE)
    return api.advice.get(call.path("kind"), call.params.cursor() or 0, limit)


async def put_advice(api: ControllerApi, call: Call) -> object:
    """Let policies read columns of keys and values."""
    update: Update = call.body
    return await api.advice.put(check_kind(call.path("kind")), update, call.submitter.user)


async def withdraw_advice(api: ControllerApi, call: Call) -> object:
    """Forget a kind."""
    return await api.advice.withdraw(call.path("kind"))


def _read(body: bytes) -> Update:
    return update_of(body_with_columns(body, AdviceBody, ("keys", "values"), most=MAX_ENTRIES))


_KIND: Final = Param(
    name="kind",
    where="path",
    text="its name",
    schema={"type": "string", "pattern": "^[a-z][a-z0-9]*(-[a-z0-9]+)*$", "maxLength": 63},
    example="price",
)
_PRICES: Final[dict[str, Any]] = {"space": "nodes", "keys": ["n1", "n2"], "values": [0.12, 0.9], "expires_in": "10m"}
_DELTA: Final[dict[str, Any]] = {
    "space": "jobs", "keys": [4, 7], "values": [2.5, None], "delta": True, "base": 41, "version": 42
}  # fmt: skip

ADVICE: Final = (
    Endpoint(
        method="GET",
        path="/v1/advice",
        handler=list_advice,
        right=OPERATORS,
        name="listAdvice",
        tag="advice",
        summary="List the kinds of advice that are held",
        result=AdviceList,
    ),
    Endpoint(
        method="GET",
        path="/v1/advice/{kind}",
        handler=get_advice,
        right=OPERATORS,
        name="getAdvice",
        tag="advice",
        summary="Show a kind of advice, with its keys and values",
        params=(
            _KIND,
            Param(
                name="limit",
                text="maximum number of keys on a page",
                schema={"type": "integer", "minimum": 1, "maximum": MAX_KEYS_A_PAGE, "default": DEFAULT_KEYS},
            ),
            CURSOR,
        ),
        result=AdviceColumns,
        problems=("400", "404"),
    ),
    Endpoint(
        method="PUT",
        path="/v1/advice/{kind}",
        handler=put_advice,
        right=OPERATORS,
        name="putAdvice",
        tag="advice",
        summary="Put advice: columns of keys and values for policies to read",
        text=(
            "The columns replace what was held of the kind, or with `delta` change only the keys they name. Unknown "
            "keys are kept. Advice is held in memory until it expires, and is never committed: a controller that has "
            "started has none. A version that is held already changes nothing, and an older one is refused."
        ),
        params=(_KIND,),
        body=Body(
            schema=ref(AdviceBody.__name__),
            examples={"prices of nodes": _PRICES, "a delta": _DELTA},
            kind=AdviceBody,
            read=_read,
        ),
        result=AdvicePut,
        problems=("400", "409", "413", "503"),
        repeated=True,
    ),
    Endpoint(
        method="DELETE",
        path="/v1/advice/{kind}",
        handler=withdraw_advice,
        right=OPERATORS,
        name="withdrawAdvice",
        tag="advice",
        summary="Withdraw a kind of advice; responds with what was held",
        params=(_KIND,),
        result=AdviceView,
        problems=("404",),
    ),
)
