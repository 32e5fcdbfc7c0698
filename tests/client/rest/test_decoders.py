"""Answers are read by several threads at once, also those of a type that nobody has met before."""

from __future__ import annotations

import subprocess
import sys

MEETING = """
import gc, sys, threading
import msgspec
from hal.client.rest.decoders import convert, decode

sys.setswitchinterval(1e-6)
gc.set_threshold(10)
BODY = b'{"f1": {"a": [1], "b": {"x": 1}}, "x": [{"c": "s"}]}'
for number in range(60):
    fields = [("a", "list[int]", []), ("b", "dict[str, int]", {}), ("c", "str | None", None)]
    Inner = msgspec.defstruct("Inner", fields, module=__name__)
    many = [(f"f{n}", "Inner | None", None) for n in range(20)]
    outer = msgspec.defstruct("Outer", [*many, ("x", "tuple[Inner, ...]", ())], module=__name__)
    together = threading.Barrier(4)

    def read(thread):
        together.wait()
        value = decode(BODY, outer) if thread % 2 else convert(msgspec.json.decode(BODY), outer)
        assert value.x[0].c == "s" and value.f1.a == [1]

    threads = [threading.Thread(target=read, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print("all read")
"""


def test_threads_that_meet_a_type_at_the_same_moment_all_read_it() -> None:
    """In a process of its own: before one thread at a time gathered what is known of a type it died of SIGSEGV."""
    ran = subprocess.run([sys.executable, "-c", MEETING], capture_output=True, text=True, timeout=100)
    assert (ran.returncode, ran.stdout.strip()) == (0, "all read"), ran.stderr
