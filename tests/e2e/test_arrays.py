"""Arrays on a real HAL: indices with gaps, items, subsets of tasks in every command."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from hal.client.sync_client import Client
from tests.e2e.conftest import DEADLINE_S, Gate, Ran

Hal = Callable[..., Ran]


def test_tasks_of_an_array_with_gaps_see_their_indices(client: Client) -> None:
    """Task 0 has index 3, task 3 index 10; the number of tasks is 4."""
    job = client.submit("echo $HAL_TASK $HAL_ARRAY_INDEX $HAL_ARRAY_COUNT", array="10,3-5", cpus=0.25)
    job.wait(DEADLINE_S, check=True)
    assert [job.logs(task=task) for task in range(4)] == ["0 3 4\n", "1 4 4\n", "2 5 4\n", "3 10 4\n"]


def test_an_array_over_items_of_any_kind(client: Client) -> None:
    """Each task sees its own in HAL_ITEM, byte for byte."""
    items = ["plain", "two words; $HOME 'é'\n", {"rate": [0.5, None]}]
    job = client.submit('printf %s "$HAL_ITEM"', items=items, max_running=2, cpus=0.25)
    job.wait(DEADLINE_S, check=True)
    assert [job.logs(task=task) for task in range(3)] == [items[0], items[1], '{"rate":[0.5,null]}']


def test_an_array_over_the_lines_of_a_file(hal: Hal, tmp_path: Path) -> None:
    """Blank lines count for nothing; output lines say whose they are."""
    (tmp_path / "cases").write_text("one\n\n  two\n")
    ran = hal("run", "--each-line", tmp_path / "cases", "--", "sh", "-c", 'echo "<$HAL_ITEM>"')
    assert (ran.code, sorted(ran.out.splitlines())) == (0, ["[0] <one>", "[1] <  two>"])


def test_an_array_over_a_json_list(hal: Hal, tmp_path: Path) -> None:
    """Entries that are no text are JSON."""
    (tmp_path / "grid.json").write_text(json.dumps([{"a": 1}, "b"]))
    ran = hal("run", "--from-json", tmp_path / "grid.json", "--", "sh", "-c", 'echo "$HAL_ITEM"')
    assert (ran.code, sorted(ran.out.splitlines())) == (0, ['[0] {"a":1}', "[1] b"])


def test_what_cannot_be_an_array_over_a_file_is_refused(hal: Hal, tmp_path: Path) -> None:
    """One error, and nothing is submitted."""
    (tmp_path / "table.json").write_text('{"a": 1}')
    (tmp_path / "cases").write_text("a\n")
    refused = hal("submit", "--from-json", tmp_path / "table.json", "--", "true")
    assert (refused.code, refused.out) == (2, "")
    assert "--from-json: expected a list with entries" in refused.err
    both = hal("submit", "--each-line", tmp_path / "cases", "--from-json", tmp_path / "table.json", "--", "true")
    assert "--each-line and --from-json cannot be combined" in both.err
    twice = hal("submit", "--each-line", tmp_path / "cases", "-a", "3", "--", "true")
    assert "items: `array` is given, too" in twice.err


def test_the_pending_tasks_of_a_running_array_end_by_their_state(client: Client, hal: Hal, gate: Gate) -> None:
    """What runs continues; the number of tasks is said; the second time nothing matches, which is said, too."""
    job = client.submit(gate.command(), array="1-20%1", name="sweep", cpus=0.25)
    gate.started()
    ran = hal("cancel", "--state", "pending", "--name", "sweep", "-y")
    assert (ran.code, ran.out.partition(": ")[2]) == (0, "19 tasks cancelled\n")
    assert hal("cancel", "--state", "pending", "--name", "sweep", "-y") == (0, "", "no job matches\n")
    again = hal("cancel", job, "--state", "pending")
    assert (again.code, f"no task of {job} is pending" in again.err) == (6, True)
    gate.open()
    assert job.wait(DEADLINE_S).counts["succeeded"] == 1


def test_tasks_are_held_released_and_cancelled_by_range_and_by_index(client: Client, hal: Hal) -> None:
    """One request for each command; an index that no task has is an error."""
    job = client.submit(["true"], array="1,3,5-9:2", hold=True, cpus=0.25)
    assert hal("cancel", f"{job}[7-9]").out == f"{job}[7-9] held: 2 tasks cancelled\n"
    assert hal("cancel", f"{job}[4]").code == 3
    assert hal("cancel", f"{job}_[3]").code == 2
    hal("release", job)
    info = job.wait(DEADLINE_S)
    assert (info.counts["succeeded"], info.counts["cancelled"]) == (3, 2)


def test_a_requeue_says_what_runs_again_and_can_take_all(client: Client, hal: Hal, tmp_path: Path) -> None:
    """First the two that failed, then all, then those that were named."""
    job = client.submit(f"test -e {tmp_path}/good || test $HAL_TASK -lt 2", array=4, cpus=0.25)
    job.wait(DEADLINE_S)
    (tmp_path / "good").touch()
    assert hal("requeue", job).out == f"{job} pending: 2 failed tasks run again\n"
    job.wait(DEADLINE_S, check=True)
    assert hal("requeue", job, "--failed").code == 6
    assert hal("requeue", job, "--all").out == f"{job} pending: 4 succeeded tasks run again\n"
    job.wait(DEADLINE_S, check=True)
    assert hal("requeue", f"{job}.1-2").out == f"{job}.1-2 pending: 2 succeeded tasks run again\n"
    job.wait(DEADLINE_S, check=True)


def test_failed_tasks_are_removed_and_the_rest_stays_as_it_was(client: Client, hal: Hal) -> None:
    """Two of four: counts, lists and outputs are of the other two; with these the job goes."""
    job = client.submit("echo $HAL_TASK; test $HAL_TASK -lt 2", array=4, cpus=0.25)
    job.wait(DEADLINE_S)
    assert hal("rm", job, "--failed") == (0, f"{job} removed: 2 tasks\n", "")
    shown = hal("show", job).out
    assert ("2 succeeded" in shown, "failed  " in shown) == (True, False), shown
    assert [line.split() for line in shown.splitlines() if line.startswith("removed")] == [["removed", "2", "tasks"]]
    assert [task.task for task in job.tasks()] == [0, 1]
    assert hal("logs", job).out == "[0] 0\n[1] 1\n"
    gone = hal("logs", f"{job}.3")
    assert (gone.code, f"task {job}.3 was removed" in gone.err) == (3, True)
    again = hal("rm", job, "--failed")
    assert (again.code, f"no task of {job} is failed or timed-out" in again.err) == (6, True)
    assert hal("rm", f"{job}[0-1]") == (0, f"{job}[0-1] removed: 2 tasks\n", "")
    assert hal("show", job).code == 3


def test_holding_a_running_job_says_that_it_runs_on(client: Client, hal: Hal, gate: Gate) -> None:
    """And it does."""
    job = client.submit(gate.command())
    gate.started()
    assert hal("hold", job).out.partition(": ")[2] == "runs on, and is held if it has to run again\n"
    gate.open()
    assert job.wait(DEADLINE_S).state == "succeeded"


def test_show_lists_chosen_tasks(client: Client, hal: Hal) -> None:
    """By number, by index, by state."""
    job = client.submit("test $HAL_TASK != 2", array="1,3,5-9:2", cpus=0.25)
    job.wait(DEADLINE_S)

    def listed(*words: object) -> list[int]:
        return [task["task"] for task in json.loads(hal("show", *words, "-o", "json").out)["task_list"]]

    assert listed(f"{job}.1-3") == [1, 2, 3]
    assert "1,3,5-9:2" in hal("show", job).out
    assert re.search(r"index +9\n", hal("show", f"{job}.4").out)
    assert listed(f"{job}[9]") == [4]
    assert listed(job, "--failed") == [2]
    assert listed(job, "--state", "succeeded", "--tasks", "2") == [0, 1]
    assert f"no task of {job} is pending" in hal("show", job, "--state", "pending").err
    assert "shown" not in hal("show", job, "--failed").err
    assert "2 of 5 tasks are shown" in hal("show", job, "--tasks", "2").err
    assert hal("show", job, "--tasks", "2", "-o", "json").err == ""
    more = "the first 2 that match are shown"
    assert [more in hal("show", job, "-s", "succeeded", "--tasks", most).err for most in (2, 4)] == [True, False]


def test_some_tasks_are_waited_for(client: Client, hal: Hal, gate: Gate) -> None:
    """While another one runs; the exit code is theirs."""
    job = client.submit(["sh", "-c", f"case $HAL_TASK in 0) {gate.shell};; 1) exit 3;; esac"], array=3, cpus=0.25)
    gate.started()
    ran = hal("wait", f"{job}.1-2")
    assert (ran.code, sorted(line.split(":")[0] for line in ran.out.splitlines())) == (
        3,
        [f"{job}.1 failed", f"{job}.2 succeeded"],
    )
    gate.open()


def test_filters_match_the_names_that_are_shown(client: Client, hal: Hal) -> None:
    """The program of a job without a name; stars; in listings and in what changes jobs."""
    shown = client.submit(["sh", "-c", "true"], hold=True, labels={"suite": "names"})
    named = [client.submit(["true"], name=name, hold=True) for name in ("fir-1", "fir-2")]
    assert [line["name"] for line in json.loads(hal("jobs", "-n", "fir*", "-o", "json").out)] == ["fir-2", "fir-1"]
    assert f"{shown} cancelled" in hal("cancel", "-y", "-n", "sh", "-l", "suite=names").out
    assert [outcome.id for outcome in client.cancel(name="fir-?")] == [job.id for job in named]


def test_show_says_where_output_is(client: Client, hal: Hal, tmp_path: Path) -> None:
    """The path on its node, as the node made it; or that HAL keeps it."""
    kept, named = client.submit(["true"]), client.submit("echo x", stdout="%x-%j.out", name="fit", workdir=tmp_path)
    client.wait_all([kept, named], DEADLINE_S)
    node = named.task().nodes[0]
    assert f"{tmp_path}/fit-{named}.out on node {node}" in hal("show", named).out
    assert f"(hal logs {kept})" in hal("show", kept).out


def test_files_for_output_are_named_to_whom_knows_other_options(hal: Hal) -> None:
    """`-o` and `-e` mean other things here."""
    assert "--stdout FILE" in hal("submit", "-o", "out.txt", "--", "true").err
    assert "--stdout FILE" in hal("run", "-o", "out.txt", "--", "true").err
    assert "--stderr FILE" in hal("submit", "-e", "out.err", "--", "true").err
