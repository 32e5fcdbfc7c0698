"""Run benchmarks, each in a process of its own, and show what they measured as one table.

A benchmark is a file of this directory that prints JSON lines, one object a measurement:

    {"bench": "replay-sdsc-easy", "value": 105000, "unit": "jobs/s", "target": 50000, "better": "higher"}

`bench`, `value` and `unit` are needed; `target` (the project's bar), `better` (`higher`, the default, or `lower`),
`holds` (the benchmark's own judgement) and `note` are optional; more keys are kept in the record. Other lines are shown
as they come. On a terminal a measurement is shown in words, elsewhere as its JSON line; a table follows at the end.

    python benchmarks/run.py                 all of them
    python benchmarks/run.py replay store    those whose file name contains one of the words
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

HERE: Final = Path(__file__).resolve().parent
OUT: Final = HERE.parent / "out" / "bench"
LIMIT_S: Final = 1_800.0
"""How long one benchmark may take."""
SKIPPED: Final = 77
"""Exit code of a benchmark that says why it cannot run here."""

console = Console(highlight=False)


def main() -> int:
    parser = argparse.ArgumentParser(description="run HAL's benchmarks")
    parser.add_argument("words", nargs="*", help="only files whose name contains one of these words")
    parser.add_argument("--list", action="store_true", help="list the files and stop")
    arguments = parser.parse_args()
    files = [path for path in benchmarks() if not arguments.words or any(w in path.stem for w in arguments.words)]
    if not files:
        console.print(f"no benchmark matches {' '.join(arguments.words)}; python benchmarks/run.py --list shows them")
        return 2
    if arguments.list:
        for path in files:
            console.print(path.stem)
        return 0

    machine = describe_machine()
    console.print(f"{machine['commit']} on {machine['cpu']}, {machine['cores']} cores, Python {machine['python']}")
    measured: list[dict[str, Any]] = []
    failed: list[str] = []
    for path in files:
        console.print(f"\n[bold]{path.stem}[/]")
        results, code = run_one(path)
        measured += [{**result, "file": path.stem} for result in results]
        if code not in (0, SKIPPED):
            failed.append(f"{path.name} exited with {code}")

    OUT.mkdir(parents=True, exist_ok=True)
    record = OUT / f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}.jsonl"
    record.write_text("".join(json.dumps({**machine, **result}) + "\n" for result in measured))
    console.print(table_of(measured))
    console.print(f"JSON lines: {os.path.relpath(record)}")
    for line in failed:
        console.print(f"[red]{line}[/]")
    return 1 if failed else 0


def benchmarks() -> list[Path]:
    """The benchmarks of this directory: every Python file but this one and those that begin with `_`."""
    return sorted(path for path in HERE.glob("*.py") if path.name != "run.py" and not path.name.startswith("_"))


def run_one(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Its measurements and its exit code; what it prints otherwise is passed on."""
    results: list[dict[str, Any]] = []
    with subprocess.Popen([sys.executable, path], stdout=subprocess.PIPE, text=True, cwd=HERE.parent) as process:
        watchdog = threading.Timer(LIMIT_S, process.kill)
        watchdog.start()
        assert process.stdout is not None
        for line in process.stdout:
            result = _measurement(line)
            if result is None:
                sys.stdout.write(f"  {line}")
                continue
            results.append(result)
            if console.is_terminal:
                line = f"  {result['bench']}: {show(result['value'])} {result['unit']}\n"
            sys.stdout.write(line)
            sys.stdout.flush()
        code = process.wait()
        watchdog.cancel()
    return results, code


def _measurement(line: str) -> dict[str, Any] | None:
    if not line.startswith("{"):
        return None
    try:
        result = json.loads(line)
    except json.JSONDecodeError:
        return None
    return result if isinstance(result, dict) and {"bench", "value", "unit"} <= result.keys() else None


def table_of(measured: list[dict[str, Any]]) -> Table:
    """All measurements, with their target and whether it is met."""
    table = Table(title="Benchmarks", title_justify="left", title_style="bold")
    table.add_column("bench")
    for column in ("measured", "target"):
        table.add_column(column, justify="right")
    table.add_column("met")
    table.add_column("note")
    for result in measured:
        target = result.get("target")
        met = "" if target is None else "[green]yes[/]" if is_met(result) else "[red]no[/]"
        bound = "" if target is None else f"{'≤' if result.get('better') == 'lower' else '≥'} {show(target)}"
        table.add_row(
            str(result["bench"]),
            f"{show(result['value'])} {result['unit']}",
            bound,
            met,
            str(result.get("note", "")),
        )
    return table


def is_met(result: dict[str, Any]) -> bool:
    """Whether a measurement reaches its target, as it says itself or as its direction says."""
    if "holds" in result:
        return bool(result["holds"])
    if result.get("better", "higher") == "lower":
        return bool(result["value"] <= result["target"])
    return bool(result["value"] >= result["target"])


def show(value: object) -> str:
    """A number as a person reads it: three digits that count."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1_000 or value == int(value) else f"{value:.4g}"


def describe_machine() -> dict[str, Any]:
    """What a figure means nothing without: commit, processor, cores, versions, instant."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=HERE.parent, capture_output=True, text=True, check=False
    )
    return {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": commit.stdout.strip() or "unknown",
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "kernel": platform.release(),
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("model name", "Model", "cpu model")):
            return line.partition(":")[2].strip()
    return platform.machine()


if __name__ == "__main__":
    sys.exit(main())
