"""The text of spec/frames.md: the wire in prose, tables and examples, from the frames' declarations.

`python -m hal.spec` writes it, with the other generated files.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec import inspect as shapes

from hal.wire.block_stream import HEAD_BYTES, MAX_BLOCK_BYTES, MAX_GOODBYE_BYTES, MAX_INCOMING_BYTES
from hal.wire.codec import LENGTH_BYTES, encode
from hal.wire.connection import MAX_INCOMING_FRAMES, MAX_OUTGOING_BYTES
from hal.wire.examples import EXAMPLES
from hal.wire.frames.agent_keeper import AGENT_KEEPER
from hal.wire.frames.controller_agent import CONTROLLER_AGENT
from hal.wire.frames.conversation import MAX_FRAME_BYTES, WIRE_VERSION, WIRE_VERSION_MIN, Conversation, Frame
from hal.wire.frames.joining import JOINING
from hal.wire.frames.sessions import MAX_BLOCK_TASKS, MAX_INLINE_BYTES, SESSIONS, TaskStatus
from hal.wire.frames.telemetry import MAX_TELEMETRY_FRAME_BYTES, TELEMETRY
from hal.wire.roles import MAY_DIAL, SERVES_STRANGERS, UNCERTIFIED, Role, host_name
from hal.wire.step_streams import (
    BEGIN,
    CLIENT,
    DATA,
    END,
    ERR,
    EXIT,
    FAIL,
    HEAD,
    HELLO,
    MAX_BULK_BYTES,
    MAX_MESSAGE_BYTES,
    MEET,
    MEETING_BYTES,
    NODE,
    OPENED,
    OUT,
    RANK,
    RESIZE,
    SIGNAL,
    VARIABLES,
)
from hal.wire.strangers import HANDSHAKE_MS, MAX_STRANGERS, STRANGER_MS

CONVERSATIONS: Final[tuple[Conversation[Any], ...]] = (JOINING, CONTROLLER_AGENT, AGENT_KEEPER, SESSIONS, TELEMETRY)
FRAMES: Final[tuple[type[Frame], ...]] = tuple(type(example) for example in EXAMPLES)
"""Every frame, in the order of the document."""

_INTRODUCTION: Final = f"""\
# The wire: frames between controllers, agents and keepers

For authors of agents and keepers, in any language with MessagePack and Unix sockets or TLS 1.3. This file is generated
from `src/hal/wire/frames`; run `make spec` to generate it again.

Versions described here: {WIRE_VERSION_MIN} to {WIRE_VERSION}.

## Bytes

A connection is a stream of frames in each direction. A frame is

| bytes | what |
|---|---|
| {LENGTH_BYTES} | length of the body, unsigned, little-endian; at most {MAX_FRAME_BYTES} |
| length | body: one MessagePack map with text keys |

The key `t` holds the frame's type, one of those below; the other keys are its fields, in any order. A field with a
default may be left out. An unknown field is ignored. An unknown type, a field of the wrong kind, a value outside the
bounds in this file, a missing field without a default, or a length over the limit ends the connection: the receiver
sends `goodbye` and closes, and a controller closes the node to new work (`quarantine`) until a person opens it. The
receiver neither waits for nor keeps any part of a frame whose length is over the limit. If the stream closes inside a
frame, that frame is dropped.

A *struct* inside a frame is a MessagePack map like the frame itself (without `t`), or, where this file says *array*, a
MessagePack array of its fields in the order of the table; trailing fields with defaults may be left out, and
additional elements are ignored. Integers are signed and fit 64 bits. Text is UTF-8. Times are milliseconds: `…_ms` is
since 1970 unless the name contains `boot` (since the host booted, including suspended time) or names a duration.
Amounts are in base units: cpu and gpu in thousandths, memory in bytes. An attempt token belongs to one attempt of one
HAL: it fences effects outside HAL and is not a secret.

## Connections

| dialler | listener | address |
|---|---|---|
| agent | controller | `wire.sock` in the socket directory that `HAL_HOME/run/socket-dir` names |
| agent | keeper | `keeper-NODE.sock` there |
| agent on another machine | controller | TLS 1.3 over TCP, port 7422 by default |
| client, worker | broker of a session | the Unix socket that the session's file names |
| agent, broker, process of a plane | collector | a Unix socket, or TLS 1.3 over TCP, as a controller names it |

Sockets are Unix stream sockets of mode 0600 in a directory of mode 0700. The listener asks the kernel who dialled
(SO_PEERCRED); any user but its own and root gets a `goodbye` with code `denied`. The dialler checks the listener the
same way.

Over TCP both ends present certificates of the HAL's own authority, TLS 1.3 or newer, without resumption:

- A certificate has the URI `hal://ROLE/NAME`: the controller's `hal://controller/NAME`, a node's `hal://agent/NODE`. A
  role that listens has the DNS name `ROLE.hal`, too, and is for server authentication; the dialler asks for that name,
  whatever host it dials. A role that dials is for client authentication. So no node can pose as a controller. Both ends
  compare the role with the table under *Roles*. An agent may send `hello` only with
  the name in its certificate. Another name, a revoked certificate, or one whose serial number the controller has not
  issued gets a `goodbye` with code `denied`.
- A side without a certificate may send `read-authority` or `join` and nothing else. A certificate of another
  authority, or an expired one, ends the TLS handshake. A handshake may take {HANDSHAKE_MS} ms; a connection
  without a certificate is closed after {STRANGER_MS} ms, and there are at most {MAX_STRANGERS} of them (the oldest
  is closed for a new one).
- Joining: a join token is `hal1.ID.SECRET.FINGERPRINT`. FINGERPRINT is the SHA-256 of the authority's certificate
  (DER) in base64url without padding. Dial, trusting nothing; send `read-authority`; compare the fingerprint of the
  `authority` that arrives; close. Dial again, verifying the controller's certificate against it and its name; send
  `join` with `ID.SECRET` and a certificate signing request (P-256, P-384 or Ed25519); store the contents of `joined`.
- Renewing: send `renew` after two thirds of the certificate's lifetime, on the live connection, with a fresh key.
- Revocation: who is not an agent sends `check-certificates` with its peers' serial numbers, at once for a new one and
  every minute for those that are connected, and disconnects those that `certificates-refused` names.
- `goodbye` with code `not-leader`: dial the address in `reason`, or the next known one if it is empty.

1. The dialler sends `hello` first. The listener answers `welcome`, or `goodbye` and closes.
2. Versions: each side supports a range. The highest version in both is used and named in `welcome`. Without overlap:
   `goodbye` with code `version`, naming both ranges. Features: those that both name.
3. The agent sends `heartbeat` every `heartbeat_ms` of the welcome, with a stamp that it requested from its keeper; the
   controller answers `heartbeat-ack` with the same stamp, and the lease of that keeper runs from it. To a controller,
   an agent that is silent for three heartbeats is unreachable.
4. Either side may send `goodbye` and close at any time. An agent that lost its controller, or its keeper, dials again
   after 50 ms, doubling to 2 s, each time a random part between half and all of that. An agent that receives nothing
   from its controller for five heartbeats dials again. The newest connection of a node replaces the one before.
5. Frames have no numbers, and nothing is resumed by number: everything that must not be lost has a name of its own.
   `hello` lists every step that the keeper holds. The controller compares, repeats starts and stops that never arrived,
   and counts steps that are no longer held as lost. An exit is repeated on every new connection until an `exits-ack`
   names it. A repeated start, stop or exit changes nothing, because attempt numbers are never reused. So after any
   break both sides reach the state that they would have reached without it, whichever frames were lost, repeated or
   overtaken by those of a newer connection. (A sequence number would only save the repetitions.)
6. Bounds: a receiver keeps at most {MAX_INCOMING_FRAMES} unhandled frames, then it stops reading, and the stream's own
   flow control stops the sender. A sender keeps at most {MAX_OUTGOING_BYTES} unwritten bytes, then it closes the
   connection. Work is bounded by *credit*: beyond the slots of a node, a controller sends tasks only with a `credit_ms`
   (about 160 ms of work for each slot, at most 64 tasks). Those that have not begun by then are returned
   (`credit-over`), or earlier on request (`recall`).

Bulk and streams use connections of their own: see *Byte streams*.

After the hello, frames in one direction are handled in the order in which they were sent. Replies have no fixed order;
`done` and `log-chunk` name what they answer. All commands and reports may be repeated; the descriptions below say why
that is harmless.

## Byte streams

A connection of a service or a broker that carries bytes instead of frames. There is no hello. Each direction is a
sequence of blocks: a head of {HEAD_BYTES} bytes, unsigned, little-endian, and the block's bytes.

| head | meaning |
|---|---|
| 1 to {MAX_BLOCK_BYTES} | so many bytes follow |
| 0 | the end of this direction; the other one goes on. When both have ended, both sides close |
| 2^31 + n, n up to {MAX_GOODBYE_BYTES} | n bytes follow, the body of a `goodbye`: the sender gives up both directions |

Anything else, or bytes after an end, breaks the protocol: the receiver sends a goodbye with code `malformed-frame` and
closes. A connection that closes without an end was broken, and what arrived is a part. A receiver keeps about
{MAX_INCOMING_BYTES} unread bytes, then it stops reading.

## Messages of streams to steps

A stream to a step (`open-stream`) is a connection of its own between a client and a process of the step's node: at a
Unix socket that the answer to the client's request names, or at a TCP port in TLS 1.3, where the client compares the
fingerprint of the certificate with that in the answer. Each direction is a sequence of messages: a head of
{HEAD.size} bytes (the kind, one byte; the length, 4 bytes, unsigned, little-endian) and so many bytes.

| kind | from | bytes |
|---|---|---|
| {HELLO} | client | the ticket; its first message |
| {DATA} | client | input of the command, or bytes for the port; up to {MAX_BULK_BYTES} |
| {END} | both | none: no more bytes follow in this direction |
| {RESIZE} | client | rows and columns of the terminal, 2 bytes each |
| {SIGNAL} | client | the number of a signal for the command, 1 byte |
| {VARIABLES} | client | of ranks: their variables, each with a zero byte behind; up to {MAX_BULK_BYTES} in all |
| {BEGIN} | client | of ranks: begin them; the directory for that, or none for the step's own |
| {OPENED} | step | none: it is open; its first message, or 14 |
| {OUT}, {ERR} | step | output, errors of the command; of a port, {OUT} alone |
| {EXIT} | step | the exit code, 4 bytes, signed; its last message, but of ranks, after whose last one it sends {END} |
| {RANK} | step | the rank that the next messages are about, 4 bytes, signed |
| {FAIL} | step | a code as in problem documents, a zero byte, a text for people; its last message |

Messages but {DATA}, {VARIABLES}, {OUT} and {ERR} have at most {MAX_MESSAGE_BYTES} bytes. A client that breaks the
rules, or whose connection ends, is gone: what runs for it is ended. Each side keeps at most 1 MiB that the other one
has not read, then it reads no more of what it would pass on.

Where client and node cannot reach each other, both dial a relay: a TCP port of the controller's host, which the answer
to the client and `open-stream` name, with a name of {MEETING_BYTES} digits for the two. Each begins with
`{MEET.decode()}`, then `{CLIENT.decode()}` (the client) or `{NODE.decode()}` (the node), then that name. From then on
the relay passes bytes on in both directions: TLS 1.3 between the two, in which the node serves, and then the messages
above.

## Tasks of sessions

A client and a worker each begin with `open-session`, which carries the token of the session's file; the broker answers
`session-opened`. Tasks travel in blocks of at most {MAX_BLOCK_TASKS}, all with the same function and options. Their
bytes stand one behind the other in `payload`, the length of each in `sizes`, 4 bytes, unsigned, little-endian. No task,
result or piece of an object has more than {MAX_INLINE_BYTES} bytes. The broker never looks into them. A client counts
its tasks, and knows a result by its block and its index there; a broker answers each task once.

| status | meaning |
|---|---|
@STATUSES@

Between clients and workers in Python, arguments are the pickle of a tuple, or of a list of a tuple and a map of named
arguments; a result is a pickle. Bytes that begin with 0 instead of the mark of a pickle are 8 bytes (0, three unused,
the number of parts: 4 bytes), then the length of each part (8 bytes), then the parts, each at a multiple of 16: a
pickle of protocol 5 and its buffers. Bytes that begin with 1 stand for a file in the `directory` of `session-opened`:
its size (8 bytes, little-endian), then its name; its bytes are one of the other two.

A client of a durable session has a key, with which it may come back, in another process, too. Its answers leave once
they are journalled, and are kept until `acknowledge-results`. After a lost connection it sends its unanswered blocks,
and the objects that they need, again; the broker ignores what it has. The client ignores results that it has. `goodbye`
from the client ends its part of the session.

A worker runs the tasks of a run, and its runs, in the order in which it received them. Results leave at the end of a
run, and before that every few milliseconds. A task that waits for other tasks (`task-waits`) holds up neither the runs
after its own nor the slot; what its run has not begun is returned before.

## Telemetry

The sender begins with `hello`, the collector answers `welcome`. The body of a frame has at most
{MAX_TELEMETRY_FRAME_BYTES} bytes here. The sender gives numbers to series (`series-table`) and sends batches:
`series-values`, `log-lines`, `spans`. Each batch has a number; numbers ascend for as long as the sender's process runs.
The collector ignores batches whose number it has from this process (`boot_id` and `pid` of the `hello`). The columns of
a batch are of one length; a batch that breaks this is dropped and counted.

Telemetry never waits and nothing waits for it: a sender has a bounded queue, drops the oldest batch and counts it
(`dropped`). It keeps batches until `batches-received` names them, sends them again on its next connection, and gives a
connection up on which it has heard nothing for 30 s although a batch is not named. A collector takes so many bytes,
values and series a second from each connection and counts the rest as dropped.

## Roles

Who may dial whom. Over TCP the certificate states the role; a dialler accepts no listener of another role than the one
that it expects, and a listener refuses a dialler that is not in its row (`goodbye`, code `denied`).

@ROLES@

## Conversations

Each kind of connection has its own set of frames. Any other frame is of an unknown type there.
"""

_SECTIONS: Final = {
    "Hello": "Agreeing",
    "ReadAuthority": "Joining",
    "Heartbeat": "Liveness",
    "Start": "Commands: controller to agent to keeper",
    "Started": "Reports: keeper to agent to controller",
    "ReadLog": "Outputs",
    "FindStep": "Streams to steps",
    "OpenSession": "Tasks of sessions",
    "SeriesTable": "Telemetry",
}


def document() -> str:
    """Build the whole text of spec/frames.md."""
    parts = [
        _INTRODUCTION.replace("@ROLES@", _roles()).replace("@STATUSES@", _statuses()),
        _conversations(),
        "\n## Frames\n",
    ]
    examples = {type(example): example for example in EXAMPLES}
    for kind in FRAMES:
        if kind.__name__ in _SECTIONS:
            parts.append(f"\n### {_SECTIONS[kind.__name__]}\n")
        parts.append(_frame(kind, examples[kind]))
    parts.append("\n## Structs inside frames\n")
    parts.extend(_struct(kind) for kind in _inner_structs())
    parts.append("\n## Names\n")
    parts.extend(_names(kind) for kind in _enums())
    return "".join(parts)


def _statuses() -> str:
    comments = _field_comments(TaskStatus)
    return "\n".join(f"| {one.value} | {comments[one.name]} |" for one in TaskStatus)


def _roles() -> str:
    lines = ["| listener | served diallers | certificate |", "|---|---|---|"]
    for listener, diallers in MAY_DIAL.items():
        served = ", ".join(f"`{role}`" for role in Role if role in diallers)
        strangers = "; without a certificate only to join" if listener in SERVES_STRANGERS else ""
        needed = "none: Unix socket only" if listener in UNCERTIFIED else f"`{host_name(listener)}`{strangers}"
        lines.append(f"| `{listener}` | {served} | {needed} |")
    return "\n".join(lines)


def _conversations() -> str:
    lines = ["\n| conversation | frames |", "|---|---|"]
    for one in CONVERSATIONS:
        tags = ", ".join(f"`{kind.__struct_config__.tag}`" for kind in FRAMES if kind in one.kinds)
        lines.append(f"| {one.name} | {tags} |")
    return "\n".join(lines) + "\n"


def _frame(kind: type[msgspec.Struct], example: Frame) -> str:
    tag = kind.__struct_config__.tag
    body = encode(example)
    text = msgspec.json.encode(example).decode()
    return (
        f"\n#### `{tag}`\n\n{_doc(kind)}\n\n{_table(kind)}\n"
        f"Example, {len(body)} bytes:\n\n```hex\n{_hex(body)}\n```\n\n```json\n{text}\n```\n"
    )


def _struct(kind: type[msgspec.Struct]) -> str:
    form = "array" if kind.__struct_config__.array_like else "map"
    return f"\n### {kind.__name__} ({form})\n\n{_doc(kind)}\n\n{_table(kind)}"


def _table(kind: type[msgspec.Struct]) -> str:
    comments = _field_comments(kind)
    lines = ["| field | type | default | meaning |", "|---|---|---|---|"]
    info = shapes.type_info(kind)
    if not isinstance(info, shapes.StructType):
        raise TypeError(f"{kind.__name__} is not a struct")
    for field in info.fields:
        default = "" if field.required else f"`{_plain(_default(field))}`"
        meaning = " ".join(comments.get(field.name, "").split())
        lines.append(f"| `{field.encode_name}` | {_type(field.type)} | {default} | {meaning} |")
    return "\n".join(lines) + "\n\n" if info.fields else ""


def _names(kind: type[Any]) -> str:
    comments = _field_comments(kind)
    lines = [f"\n### {kind.__name__}\n", f"{_doc(kind)}\n", "| value | meaning |", "|---|---|"]
    lines += [f"| `{member.value}` | {comments.get(member.name, '')} |" for member in kind]
    return "\n".join(lines) + "\n"


def _type(kind: shapes.Type) -> str:
    match kind:
        case shapes.StructType(cls=cls) | shapes.EnumType(cls=cls):
            return cls.__name__
        case shapes.VarTupleType(item_type=item, max_length=most):
            return f"array of {_type(item)}{_at_most(most)}"
        case shapes.TupleType(item_types=items):
            return f"[{', '.join(_type(item) for item in items)}]"
        case shapes.DictType(key_type=key, value_type=value, max_length=most):
            return f"map of {_type(key)} to {_type(value)}{_at_most(most)}"
        case shapes.StrType(max_length=most):
            return "text" if most is None else f"text of ≤ {most} characters"
        case shapes.IntType(ge=least, le=most):
            return "integer" if least is None or most is None else f"integer {_number(least)} to {_number(most)}"
        case shapes.FloatType(ge=least, le=most):
            return "number" if least is None or most is None else f"number {least:g} to {most:g}"
        case shapes.BoolType():
            return "boolean"
        case shapes.BytesType():
            return "binary (base64 in JSON)"
        case shapes.NoneType():
            return "nil"
        case shapes.UnionType(types=kinds):
            return " or ".join(_type(one) for one in kinds)
        case _:
            raise TypeError(f"{kind} has no words in the wire's description")


def _at_most(most: int | None) -> str:
    return "" if most is None else f" (≤ {most})"


def _number(value: int) -> str:
    """Format a bound for people: large ones by the power of two."""
    if value < 0:
        return f"-{_number(-value)}"
    if value >= 1 << 16 and value & (value - 1) == 0:
        return f"2^{value.bit_length() - 1}"
    if value >= 1 << 16 and value & (value + 1) == 0:
        return f"2^{value.bit_length()}-1"
    return str(value)


def _default(field: shapes.Field) -> object:
    return field.default if field.default is not msgspec.NODEFAULT else field.default_factory()


def _plain(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _inner_structs() -> list[type[msgspec.Struct]]:
    found: dict[type[msgspec.Struct], None] = {}
    for kind in FRAMES:
        for inner in _types_in(kind):
            if isinstance(inner, shapes.StructType) and inner.cls is not kind:
                found[inner.cls] = None
    return list(found)


def _enums() -> list[type[Any]]:
    found: dict[type[Any], None] = {}
    for kind in FRAMES:
        for inner in _types_in(kind):
            if isinstance(inner, shapes.EnumType):
                found[inner.cls] = None
    return list(found)


def _types_in(kind: Any) -> Iterator[shapes.Type]:
    stack = [shapes.type_info(kind)]
    while stack:
        info = stack.pop(0)
        yield info
        match info:
            case shapes.StructType(fields=fields):
                stack.extend(field.type for field in fields)
            case shapes.VarTupleType(item_type=item):
                stack.append(item)
            case shapes.TupleType(item_types=items):
                stack.extend(items)
            case shapes.DictType(key_type=key, value_type=value):
                stack.extend((key, value))
            case shapes.UnionType(types=kinds):
                stack.extend(kinds)


def _doc(kind: type[Any]) -> str:
    return inspect.cleandoc(kind.__doc__ or "")


def _field_comments(kind: type[Any]) -> dict[str, str]:
    """Read the docstring under each field of the class from its source: `name: type` and then a string."""
    module = sys.modules[kind.__module__]
    comments: dict[str, str] = {}
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.ClassDef) and node.name == kind.__name__:
            for first, second in zip(node.body, node.body[1:], strict=False):
                name = _assigned(first)
                if (
                    name
                    and isinstance(second, ast.Expr)
                    and isinstance(second.value, ast.Constant)
                    and isinstance(second.value.value, str)
                ):
                    comments[name] = inspect.cleandoc(second.value.value)
    return comments


def _assigned(node: ast.stmt) -> str:
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return node.target.id
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return ""


def _hex(data: bytes) -> str:
    rows = [data[at : at + 32] for at in range(0, len(data), 32)]
    return "\n".join(row.hex(" ") for row in rows)
