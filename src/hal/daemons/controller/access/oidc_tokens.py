"""What an OpenID Connect provider says about a person: a signed token, checked. Pure; PyJWT is imported when needed.

A token is believed only if a key of the provider signed it with one of `ALGORITHMS`, each of which goes with one kind
of key; if it is for this HAL; and if it holds now. What it says about itself (`alg`, `jku`, `jwk`, `x5u`) chooses
nothing but among these.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from hal.core.model import shown
from hal.core.model.job import is_name
from hal.daemons.controller.access.oidc_settings import OidcSection
from hal.rest.identity import UnauthorizedError

ALGORITHMS: Final = {"RS256": ("RSA", ""), "ES256": ("EC", "P-256"), "EdDSA": ("OKP", "Ed25519")}
"""Accepted signatures, with the type and the curve of their keys."""
MAX_TOKEN_CHARS: Final = 16 << 10
MAX_GROUPS: Final = 2_000
"""Groups of one person that are looked at."""
MAX_GROUP_CHARS: Final = 256
MAX_KEYS: Final = 64
"""Keys of a provider."""
RSA_BITS: Final = (2_048, 8_192)
"""Shortest and longest modulus."""
MAX_KEY_ID_CHARS: Final = 500
MS: Final = 1_000
FAR_S: Final = 1 << 53
"""No instant is later."""


class UnknownKeyError(UnauthorizedError):
    """No known key has signed it: the provider may have a new one."""


class Person(NamedTuple):
    """Who a token is about."""

    user: str
    groups: frozenset[str] | None
    """From the claim, with the prefix; None: claims are not asked for groups."""


class Key(NamedTuple):
    """A public key of a provider."""

    id: str
    algorithm: str
    """The only one that it verifies."""
    public: Any
    """As PyJWT takes it."""


def read_keys(document: Mapping[str, Any]) -> list[Key]:
    """The usable keys of a JWKS document; others are left out.

    Raises:
        UnauthorizedError: it is not such a document.
    """
    from jwt import PyJWK
    from jwt.exceptions import PyJWTError

    listed = document.get("keys")
    if not isinstance(listed, list):
        raise UnauthorizedError("the provider's keys are not a JWKS document")
    found: list[Key] = []
    for one in listed[:MAX_KEYS]:
        algorithm = _algorithm_of(one)
        if not algorithm:
            continue
        try:
            public = PyJWK(one, algorithm=algorithm)
        except (PyJWTError, ValueError, TypeError, KeyError):
            continue
        bits = getattr(public.key, "key_size", RSA_BITS[0])
        if algorithm == "RS256" and not RSA_BITS[0] <= bits <= RSA_BITS[1]:
            continue
        found.append(Key(str(one.get("kid", "")), algorithm, public))
    return found


def _algorithm_of(jwk: object) -> str:
    """The algorithm for which the key may be used; '' if it is none of ours."""
    if not isinstance(jwk, dict) or jwk.get("use", "sig") != "sig" or len(str(jwk.get("kid", ""))) > MAX_KEY_ID_CHARS:
        return ""
    if "verify" not in jwk.get("key_ops", ["verify"]):
        return ""
    for algorithm, (kind, curve) in ALGORITHMS.items():
        if jwk.get("kty") == kind and jwk.get("crv", "") == curve and jwk.get("alg", algorithm) == algorithm:
            return algorithm
    return ""


def verify(text: str, keys: Sequence[Key], settings: OidcSection, now_ms: int) -> Person:
    """Who the token is about.

    Raises:
        UnauthorizedError: it is not believed; says why.
        UnknownKeyError: it may be another one's, or signed with a key that is not known yet.
    """
    header = _header(text)
    algorithm = header.get("alg")
    if algorithm not in ALGORITHMS:
        raise _refused(f"is signed with '{shown(algorithm)}'; accepted are {', '.join(ALGORITHMS)}")
    if "crit" in header:
        raise _refused("has extensions that are not understood")
    key_id = header.get("kid", "")
    fitting = [key for key in keys if key.algorithm == algorithm and (key.id == key_id or not key_id)]
    if not fitting or (not key_id and len(fitting) > 1):
        raise UnknownKeyError(
            f"the provider has no key '{shown(key_id)}' for {algorithm}",
            hint="log in again; if that does not help, compare access.oidc.issuer in hal.toml with the token's",
        )
    claims = _signed_claims(text, fitting[0], settings)
    _check_times(claims, settings, now_ms)
    _check_party(claims, settings)
    return Person(_user(claims, settings), _groups(claims, settings))


def _header(text: str) -> dict[str, Any]:
    if len(text) > MAX_TOKEN_CHARS or not text.isascii() or text.count(".") != 2:
        raise _refused("is not a signed JSON Web Token")
    first = text.partition(".")[0]
    try:
        header = msgspec.json.decode(base64.urlsafe_b64decode(first + "=" * (-len(first) % 4)))
    except (binascii.Error, ValueError, RecursionError) as error:
        raise _refused("has no header that can be read") from error
    if not isinstance(header, dict) or not isinstance(header.get("kid", ""), str):
        raise _refused("has no header that can be read")
    return header


def _signed_claims(text: str, key: Key, settings: OidcSection) -> dict[str, Any]:
    import jwt
    from jwt.exceptions import InvalidAudienceError, InvalidIssuerError, InvalidSignatureError, PyJWTError

    # Times are compared with HAL's clock, in `_check_times`.
    times = {"verify_exp": False, "verify_nbf": False, "verify_iat": False}
    options: Any = {"require": ["iss", "aud", "exp", "iat", "sub"], **times}
    try:
        claims: dict[str, Any] = jwt.decode(
            text,
            key.public,
            algorithms=[key.algorithm],
            audience=settings.wanted_audience,
            issuer=settings.issuer,
            options=options,
        )
    except InvalidSignatureError:
        raise _refused("is not signed by the provider") from None
    except InvalidAudienceError:
        raise _refused(f"is not for '{settings.wanted_audience}'") from None
    except InvalidIssuerError:
        raise _refused(f"is not of {settings.issuer}") from None
    except (PyJWTError, ValueError, TypeError, RecursionError) as error:
        raise _refused(f"is not good: {shown(str(error))}") from None
    return claims


def _check_times(claims: Mapping[str, Any], settings: OidcSection, now_ms: int) -> None:
    skew = int(settings.skew)
    expires, issued = _instant_ms(claims, "exp"), _instant_ms(claims, "iat")
    if now_ms >= expires + skew:
        raise _refused("has expired", "log in again; if it is new, compare the clocks of provider and controller")
    for name, at in (("iat", issued), ("nbf", _instant_ms(claims, "nbf") if "nbf" in claims else issued)):
        if at > now_ms + skew:
            raise _refused(f"holds only later ({name})", "compare the clocks of provider and controller")


def _instant_ms(claims: Mapping[str, Any], name: str) -> int:
    value = claims[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= FAR_S:
        raise _refused(f"has a claim '{name}' that is not a time")
    return int(value * MS)


def _check_party(claims: Mapping[str, Any], settings: OidcSection) -> None:
    """An ID token for several audiences names the one that it was issued to (OpenID Connect Core, 3.1.3.7)."""
    several = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
    if settings.by_id_token and (several or "azp" in claims) and claims.get("azp") != settings.client_id:
        raise _refused("was issued to another client")


def _user(claims: Mapping[str, Any], settings: OidcSection) -> str:
    name = claims.get(settings.user_claim)
    if not isinstance(name, str) or not name:
        raise _refused(f"has no claim '{settings.user_claim}', which names the user")
    if settings.user_claim == "email" and claims.get("email_verified") is not True:
        raise _refused("has an e-mail address that the provider has not verified")
    user = settings.user_prefix + name
    if not is_name(user):
        raise _refused(f"names a user '{shown(user)}', which is not a user's name")
    return user


def _groups(claims: Mapping[str, Any], settings: OidcSection) -> frozenset[str] | None:
    if not settings.groups_claim:
        return None
    listed = claims.get(settings.groups_claim, [])
    if isinstance(listed, str):
        listed = [listed]
    if not isinstance(listed, list) or len(listed) > MAX_GROUPS:
        raise _refused(f"has a claim '{settings.groups_claim}' that is not a list of at most {MAX_GROUPS} groups")
    return frozenset(
        settings.groups_prefix + name for name in listed if isinstance(name, str) and len(name) <= MAX_GROUP_CHARS
    )


def _refused(why: str, hint: str = "log in again: hal login URL") -> UnauthorizedError:
    return UnauthorizedError(f"the provider's token {why}", hint=hint)
