"""A small OpenID Connect provider for tests, as a process of its own: real HTTP, real keys, the device flow.

`python provider.py` prints its URL. What it does wrong it is told by `POST /control` (see `control`).
"""

from __future__ import annotations

import base64
import json
import sys
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import get_default_algorithms

CLIENT = "hal-cli"
HOUR_S = 3_600


class SigningKey:
    """One key pair."""

    def __init__(self, algorithm: str) -> None:
        self.id = uuid.uuid4().hex[:8]
        self.algorithm = algorithm
        self.private: Any = {
            "RS256": lambda: rsa.generate_private_key(65537, 2048),
            "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
            "EdDSA": ed25519.Ed25519PrivateKey.generate,
        }[algorithm]()

    @property
    def public_pem(self) -> bytes:
        kind = serialization.PublicFormat.SubjectPublicKeyInfo
        found: bytes = self.private.public_key().public_bytes(serialization.Encoding.PEM, kind)
        return found

    def jwk(self) -> dict[str, Any]:
        found = json.loads(get_default_algorithms()[self.algorithm].to_jwk(self.private.public_key()))
        return {**found, "kid": self.id, "use": "sig", "alg": self.algorithm}


class State:
    """What the provider knows."""

    def __init__(self, url: str = "") -> None:
        self.url = url
        self.keys = {algorithm: SigningKey(algorithm) for algorithm in ("RS256", "ES256", "EdDSA")}
        self.published = [key.jwk() for key in self.keys.values()]
        self.claims: dict[str, Any] = {"preferred_username": "carol", "groups": ["lab"]}
        self.jwks = "good"
        """`good`; `huge`, `slow`, `broken`, `redirect`."""
        self.fetches = 0
        self.agreed: bool | None = True
        """Whether the person agrees; None: they have not answered yet."""
        self.devices: set[str] = set()
        self.refreshes: set[str] = set()
        self.revoked: list[str] = []
        self.go = threading.Event()

    def token(self, *, alg: str = "ES256", **claims: Any) -> str:
        """A token as it should be, but for these claims; None removes one."""
        now_s = int(time.time())
        whole = {"iss": self.url, "aud": CLIENT, "sub": "c-1", "iat": now_s, "exp": now_s + HOUR_S}
        whole = {name: value for name, value in (whole | self.claims | claims).items() if value is not None}
        key = self.keys[alg]
        return jwt.encode(whole, key.private, algorithm=alg, headers={"kid": key.id})

    def hostile(self, kind: str) -> str:
        """A token that nobody may believe."""
        good = self.token()
        head, body, signature = good.split(".")
        rsa_key = self.keys["RS256"]
        if kind == "none":
            return jwt.encode(jwt.decode(good, options={"verify_signature": False}), None, algorithm="none")
        if kind == "hs256":
            # Signed with the public key as if it were a shared secret; PyJWT would refuse to make it.
            claims = jwt.decode(good, options={"verify_signature": False})
            made = get_default_algorithms()["HS256"]
            parts = [
                _b64({"alg": "HS256", "typ": "JWT", "kid": rsa_key.id}),
                _b64(claims),
            ]
            text = ".".join(parts)
            mac = made.sign(text.encode(), rsa_key.public_pem)
            return f"{text}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"
        if kind == "forged":
            other = SigningKey("ES256")
            claims = jwt.decode(good, options={"verify_signature": False})
            return jwt.encode(claims, other.private, algorithm="ES256", headers={"kid": self.keys["ES256"].id})
        if kind == "own-key":
            other = SigningKey("ES256")
            claims = jwt.decode(good, options={"verify_signature": False})
            return jwt.encode(claims, other.private, algorithm="ES256", headers={"kid": other.id, "jwk": other.jwk()})
        if kind == "changed":
            return f"{head}.{_b64(json.loads(_unb64(body)) | {'preferred_username': 'root2'})}.{signature}"
        if kind == "swapped-alg":
            return f"{_b64({'alg': 'RS256', 'kid': self.keys['ES256'].id})}.{body}.{signature}"
        raise ValueError(kind)


def _b64(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def _unb64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


class Handler(BaseHTTPRequestHandler):
    """Answers of the provider."""

    state: State

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""

    def _answer(self, value: object, status: int = 200) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        state = self.state
        if self.path == "/.well-known/openid-configuration":
            self._answer(
                {
                    "issuer": state.url,
                    "jwks_uri": f"{state.url}/keys",
                    "token_endpoint": f"{state.url}/token",
                    "device_authorization_endpoint": f"{state.url}/device",
                    "revocation_endpoint": f"{state.url}/revoke",
                }
            )
        elif self.path == "/keys":
            self._keys(state)
        else:
            self._answer({}, 404)

    def _keys(self, state: State) -> None:
        state.fetches += 1
        match state.jwks:
            case "huge":
                self._answer({"keys": state.published, "padding": "x" * (1 << 20)})
            case "slow":
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b'{"keys"')
                self.wfile.flush()
                state.go.wait(60)
            case "broken":
                self._answer({}, 500)
            case "redirect":
                self.send_response(302)
                self.send_header("Location", f"{state.url}/good-keys")
                self.end_headers()
            case _:
                self._answer({"keys": state.published})

    def do_POST(self) -> None:
        state = self.state
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        if self.path == "/control":
            self._answer(control(state, json.loads(body)))
            return
        form = {name: values[0] for name, values in parse_qs(body).items()}
        if form.get("client_id") != CLIENT:
            self._answer({"error": "invalid_client"}, 401)
        elif self.path == "/device":
            code = uuid.uuid4().hex
            state.devices.add(code)
            url = f"{state.url}/activate"
            self._answer(
                {
                    "device_code": code,
                    "user_code": "WDJB-MJHT",
                    "verification_uri": url,
                    "verification_uri_complete": f"{url}?user_code=WDJB-MJHT",
                    "expires_in": 600,
                    "interval": 1,
                }
            )
        elif self.path == "/token":
            self._token(state, form)
        elif self.path == "/revoke":
            state.revoked.append(form["token"])
            state.refreshes.discard(form["token"])
            self._answer({})
        else:
            self._answer({}, 404)

    def _token(self, state: State, form: dict[str, str]) -> None:
        if form["grant_type"] == "refresh_token":
            if form["refresh_token"] not in state.refreshes:
                self._answer({"error": "invalid_grant", "error_description": "the session has ended"}, 400)
                return
            state.refreshes.discard(form["refresh_token"])  # each is good once
        elif form["device_code"] not in state.devices:
            self._answer({"error": "invalid_grant"}, 400)
            return
        elif state.agreed is None:
            state.agreed = True
            self._answer({"error": "authorization_pending"}, 400)
            return
        elif not state.agreed:
            self._answer({"error": "access_denied", "error_description": "carol said no"}, 400)
            return
        else:
            state.devices.discard(form["device_code"])
        again = uuid.uuid4().hex
        state.refreshes.add(again)
        self._answer({"id_token": state.token(), "access_token": "opaque", "refresh_token": again, "expires_in": 300})


def control(state: State, asked: dict[str, Any]) -> dict[str, Any]:
    """Carry out what a test wants: `set` fields, `rotate` an algorithm's key (`hide`: and do not publish it yet),
    `mint` a token, `hostile`: a bad one, `publish` all keys, `forget` all sessions, `reset` everything."""
    for name, value in asked.get("set", {}).items():
        setattr(state, name, value)
    if algorithm := asked.get("rotate"):
        state.keys[algorithm] = SigningKey(algorithm)
    if asked.get("publish") or (asked.get("rotate") and not asked.get("hide")):
        state.published = [key.jwk() for key in state.keys.values()]
    if asked.get("forget"):
        state.refreshes.clear()
    answer: dict[str, Any] = {"fetches": state.fetches, "revoked": len(state.revoked), "sessions": len(state.refreshes)}
    if asked.get("reset"):
        state.__init__(state.url)  # type: ignore[misc]
    if "mint" in asked:
        answer["token"] = state.token(**asked["mint"])
    if "hostile" in asked:
        answer["token"] = state.hostile(asked["hostile"])
    return answer


def main() -> None:
    """Serve until killed."""
    Handler.state = state = State()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    sys.stdout.write(state.url + "\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
