"""`[web]` of hal.toml: where and how the page is served. Pure."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct

from hal.core.model.config_sections import Section
from hal.core.model.errors import SpecError

DEFAULT_LISTEN: Final = "127.0.0.1:4280"
MAX_HOSTS: Final = 64
LOCAL_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class WebSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[web]`"""

    listen: Annotated[str, Meta(description="address and port of the page, HOST:PORT")] = DEFAULT_LISTEN
    hosts: Annotated[
        tuple[str, ...],
        Meta(description="names by which browsers reach it beside its address; requests for other names are refused"),
    ] = ()
    tls_cert: Annotated[str, Meta(description="PEM file with the certificate and its chain")] = ""
    tls_key: Annotated[str, Meta(description="PEM file with its key")] = ""
    plain: Annotated[bool, Meta(description="serve other machines without TLS: only behind a proxy that has it")] = (
        False
    )
    collector: Annotated[
        str, Meta(description="URL of the collector; empty: its socket beside the controller's, where there is one")
    ] = ""


def check_web(section: WebSection) -> None:
    """
    Raises:
        SpecError: half a certificate, tokens that would be readable on the network, or too many names.
    """
    if bool(section.tls_cert) != bool(section.tls_key):
        raise SpecError("web.tls_cert and web.tls_key belong together")
    if len(section.hosts) > MAX_HOSTS:
        raise SpecError(f"web.hosts: {len(section.hosts)} names; at most {MAX_HOSTS} are allowed")
    host = section.listen.rpartition(":")[0].strip("[]")
    if host not in LOCAL_NAMES and not section.tls_cert and not section.plain:
        raise SpecError(
            f"web.listen: on {section.listen} tokens would go over the network without TLS",
            hint="name a certificate (tls_cert, tls_key), or set plain where a proxy before it has TLS",
        )


WEB: Final = Section(name="web", kind=WebSection, reader="web", about="The page (`hal web`).", check=check_web)
