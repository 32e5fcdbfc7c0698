"""The endpoints about machines that could be rented: put, list, withdraw offers."""

from __future__ import annotations

from typing import Final

from hal.core.model.offer import Offer
from hal.daemons.controller.api.endpoints.endpoint import TEXT, Endpoint, Param, body_of
from hal.daemons.controller.api.requests.call import Call
from hal.daemons.controller.service.controller_api import ControllerApi
from hal.daemons.controller.service.nodes.offers import OfferBody, OffersList
from hal.rest.rights import EVERYBODY, OPERATORS

_NAME: Final = Param(name="name", where="path", text="name of the offer", schema=TEXT, example="a100-spot")


async def put_offer(api: ControllerApi, call: Call) -> object:
    """Make an offer, or make it again."""
    asked: OfferBody = call.body
    return await api.offers.put(call.path("name"), asked, call.submitter)


async def list_offers(api: ControllerApi, call: Call) -> object:
    """All that hold."""
    return api.offers.all()


async def get_offer(api: ControllerApi, call: Call) -> object:
    """Return an offer."""
    return api.offers.get(call.path("name"))


async def withdraw_offer(api: ControllerApi, call: Call) -> object:
    """Withdraw an offer."""
    return await api.offers.withdraw(call.path("name"), call.submitter)


OFFERS: Final = (
    Endpoint(
        method="GET",
        path="/v1/offers",
        handler=list_offers,
        right=EVERYBODY,
        name="listOffers",
        tag="nodes",
        summary="List the machines that could be rented, by offer",
        result=OffersList,
    ),
    Endpoint(
        method="GET",
        path="/v1/offers/{name}",
        handler=get_offer,
        right=EVERYBODY,
        name="getOffer",
        tag="nodes",
        summary="Show one offer",
        params=(_NAME,),
        result=Offer,
        problems=("404",),
    ),
    Endpoint(
        method="PUT",
        path="/v1/offers/{name}",
        handler=put_offer,
        right=OPERATORS,
        name="putOffer",
        tag="nodes",
        summary="Offer machines that could be rented",
        text="Jobs that no node could hold are accepted if offered machines could, and wait. Nothing is placed on an "
        "offer. It holds until it expires, is made again, or is withdrawn.",
        params=(_NAME,),
        body=body_of(
            OfferBody,
            {
                "four machines": {
                    "resources": {"cpu": 64, "memory": "512GiB", "gpu": 8},
                    "labels": {"pool": "spot"},
                    "count": 4,
                    "expires_in": "10m",
                }
            },
        ),
        result=Offer,
        problems=("400", "413", "503"),
    ),
    Endpoint(
        method="DELETE",
        path="/v1/offers/{name}",
        handler=withdraw_offer,
        right=OPERATORS,
        name="withdrawOffer",
        tag="nodes",
        summary="Withdraw an offer; responds with what it was",
        text="Jobs that wait for it wait on, and say so.",
        params=(_NAME,),
        result=Offer,
        problems=("404", "503"),
    ),
)
