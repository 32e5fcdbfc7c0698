"""Jobs on a real HAL: submit, dependencies, hold, why, update, requeue, cancel, logs, listings, bad input."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

import hal as api
from hal.client.sync_client import Client
from hal.core.model import DeniedError
from tests.e2e.conftest import DEADLINE_S, Gate, LiveHal, Ran, until
from tests.e2e.terminal import Terminal

Hal = Callable[..., Ran]


def test_an_array_and_what_waits_for_all_of_it(client: Client, tmp_path: Path) -> None:
    """The fan-in job starts only when every task of the array has written its line."""
    array = client.submit(f"echo $HAL_ARRAY_INDEX >> {tmp_path}/lines", array=20, cpus=0.25)
    fan_in = client.submit(["wc", "-l", str(tmp_path / "lines")], after=array)
    assert fan_in.wait(DEADLINE_S, check=True).state == "succeeded"
    assert fan_in.logs().split()[0] == "20"
    assert array.info.tasks == 20 or array.refresh().tasks == 20
    assert {task.state for task in array.tasks()} == {"succeeded"}


def test_jobs_of_one_submission_may_name_each_other(client: Client) -> None:
    """`use` waits for `prepare` of the same submission; both ran in that order."""
    use, prepare = client.submit(
        [
            {"name": "use", "command": ["true"], "dependencies": ["prepare"]},
            {"name": "prepare", "command": ["true"]},
        ]
    )
    ends = client.wait_all([prepare, use], DEADLINE_S)
    assert ends[0].end_ms is not None
    assert ends[1].start_ms is not None
    assert ends[0].end_ms <= ends[1].start_ms


def test_a_job_behind_a_failed_one_is_cancelled_without_running(client: Client) -> None:
    """afterok cannot be met any more; afternotok runs."""
    bad = client.submit(["false"])
    never = client.submit(["true"], after=bad)
    rescue = client.submit(["true"], after=f"afternotok:{bad.id}")
    ends = client.wait_all([bad, never, rescue], DEADLINE_S)
    assert [info.state for info in ends] == ["failed", "cancelled", "succeeded"]
    assert ends[1].start_ms is None


def test_each_way_of_waiting_for_others_ends_as_it_should(client: Client, gate: Gate) -> None:
    """`after` goes when the other runs, `afterany` when it has failed; all of two, one of two; `run` counts as met."""
    fails = client.submit(gate.command("exit 1"))
    after = client.submit(["true"], after=f"after:{fails.id}")
    waiting = {
        "afterany": client.submit(["true"], after=f"afterany:{fails.id}"),
        "both": client.submit(["true"], after=f"{after.id} & afternotok:{fails.id}"),
        "either": client.submit(["true"], after=f"{fails.id} | afterok:{after.id}"),
        "none of two": client.submit(["true"], after=f"{after.id} & {fails.id}"),
        "run": client.submit(["true"], after=fails, on_dependency_failed="run"),
    }
    gate.started()
    assert after.wait(DEADLINE_S).state == "succeeded"
    assert waiting["either"].wait(DEADLINE_S).state == "succeeded"
    assert {name for name, job in waiting.items() if job.refresh().state == "pending"} == {*waiting} - {"either"}
    assert "afternotok" in waiting["both"].why().message
    gate.open()
    ends = {name: job.wait(DEADLINE_S).state for name, job in waiting.items()}
    assert ends == {name: "cancelled" if name == "none of two" else "succeeded" for name in waiting}


def test_tasks_follow_their_own_predecessors(client: Client, gate: Gate) -> None:
    """Task 1 of the second array runs while task 0 of the first still does; both arrays end well."""
    first = client.submit(["sh", "-c", f"test $HAL_ARRAY_INDEX = 1 || {{ {gate.shell}; }}"], array=2, cpus=0.5)
    second = client.submit(["true"], array=2, cpus=0.5, after=f"aftercorr:{first.id}")
    gate.started()
    until(lambda: [task.state for task in second.tasks()] == ["pending", "succeeded"], "task 1 did not follow")
    gate.open()
    assert {info.state for info in client.wait_all([first, second], DEADLINE_S)} == {"succeeded"}


def test_a_job_starts_not_before_it_may(hal: Hal, client: Client) -> None:
    """`--begin now+1s`: it says so while it waits, and starts by itself."""
    job = client.job(hal("submit", "--begin", "now+1s", "--", "true").out.strip())
    submitted_ms = job.refresh().submit_ms
    why = job.why()
    assert (why.reason, why.basis) == ("begin-at", "begin-at")
    info = job.wait(DEADLINE_S, check=True)
    assert info.start_ms is not None
    assert info.start_ms >= submitted_ms + 900


def test_a_held_dependant_goes_on_when_its_predecessor_is_requeued(client: Client, tmp_path: Path) -> None:
    """It failed for want of a file; with the file it succeeds, and nobody had to release the other."""
    first = client.submit(["cat", str(tmp_path / "late")])
    second = client.submit(["true"], after=first, on_dependency_failed="hold")
    first.wait(DEADLINE_S)
    until(lambda: second.refresh().state == "held", "never held")
    (tmp_path / "late").write_text("here\n")
    client.requeue(first.id)
    assert second.wait(DEADLINE_S, check=True).state == "succeeded"


def test_singletons_never_overlap(client: Client, gate: Gate) -> None:
    """Two of one name: the second starts when the first has ended."""
    first, second = (client.submit(gate.command(), name="alone", after="singleton") for _ in range(2))
    assert gate.started().startswith(f"{first.id}.")
    assert "all earlier jobs named 'alone'" in second.why().message
    gate.open()
    assert gate.started().startswith(f"{second.id}.")
    gate.open()
    ends = client.wait_all([first, second], DEADLINE_S)
    assert ends[0].end_ms is not None
    assert ends[1].start_ms is not None
    assert ends[0].end_ms <= ends[1].start_ms


def test_no_more_tasks_run_at_once_than_the_array_says(client: Client, tmp_path: Path) -> None:
    """Twelve tasks, two at once: a lock directory for each of two places is always free for who starts."""
    place = f"mkdir {tmp_path}/1 2>/dev/null && d=1 || {{ mkdir {tmp_path}/2 && d=2; }} || exit 9"
    job = client.submit(f"{place}; sleep 0.05; rmdir {tmp_path}/$d", array="0-11%2", cpus=0.1)
    assert job.wait(DEADLINE_S, check=True).state == "succeeded"


def test_the_graph_of_a_job_shows_both_sides(hal: Hal, client: Client) -> None:
    """A diamond, held at its top: seen from the left side."""
    top, left, _, bottom = client.submit(
        [
            {"name": "top", "command": ["true"], "hold": True},
            {"name": "left", "command": ["true"], "dependencies": ["top"]},
            {"name": "right", "command": ["true"], "dependencies": ["top"]},
            {"name": "bottom", "command": ["true"], "dependencies": "left | right"},
        ]
    )
    assert hal("show", left.id, "--graph").out == (
        f"{left.id} left: pending\nwaits for\n└─ afterok {top.id} top: held\n"
        f"is waited for by\n└─ {bottom.id} bottom: pending\n"
    )
    top.release()
    bottom.wait(DEADLINE_S, check=True)


def test_a_failure_is_tried_again_as_often_as_it_said(client: Client) -> None:
    """Two retries are three attempts."""
    job = client.submit("exit 4", retries={"max": 2, "backoff": "10ms"})
    assert (job.wait(DEADLINE_S).state, job.exit_code) == ("failed", 4)
    assert [(a.attempt, a.state, a.exit_code) for a in job.task().attempts] == [(n, "failed", 4) for n in (1, 2, 3)]


def test_a_signal_before_the_limit_lets_a_job_save_its_work(client: Client) -> None:
    """USR1 one second before the limit of two; the job ends well by itself."""
    script = "#!/bin/sh\ntrap 'echo saved; exit 0' USR1\nwhile :; do sleep 0.05; done\n"
    job = client.submit(script=script, walltime=3, signal={"name": "USR1", "before": "2s"})
    assert job.wait(DEADLINE_S).state == "succeeded"
    assert job.logs() == "saved\n"


def test_a_held_job_waits_for_its_release(hal: Hal, client: Client) -> None:
    """`hal why` says so and what helps."""
    job = client.submit(["true"], hold=True)
    assert job.state == "held"
    why = hal("why", job.id)
    assert "held" in why.out
    assert f"hal release {job.id}" in why.out
    assert hal("release", job.id).code == 0
    assert job.wait(DEADLINE_S).state == "succeeded"


def test_hold_keeps_a_waiting_job_from_starting(hal: Hal, client: Client, gate: Gate) -> None:
    """A job behind a running one is held; when the running one ends it stays."""
    first = client.submit(gate.command())
    gate.started()
    second = client.submit(["true"], after=first)
    assert hal("hold", second.id).code == 0
    gate.open()
    first.wait(DEADLINE_S, check=True)
    assert second.state == "held"
    second.release()
    second.wait(DEADLINE_S, check=True)


def test_why_of_one_task_says_whether_that_one_waits(hal: Hal, client: Client, gate: Gate) -> None:
    """The first of two runs, the second is not let; there is no third."""
    job = client.submit(gate.command(), array=2, max_running=1)
    gate.started()
    until(lambda: job.task(0).state == "running", "nobody was told that it runs")
    assert hal("why", f"{job.id}.0").out.startswith("task 0 is not waiting: it is running")
    assert "max_running is 1" in hal("why", f"{job.id}.1").out
    assert json.loads(hal("why", f"{job.id}.0", "--json").out)["state"] == "running"
    missing = hal("why", f"{job.id}.2")
    assert (missing.code, f"job {job.id} has no task 2" in missing.err) == (3, True)
    gate.open(2)
    job.wait(DEADLINE_S, check=True)


def test_why_names_the_resource_that_is_short(hal: Hal, client: Client, tmp_path: Path) -> None:
    """All cpu is taken by a gang of three whole nodes."""
    gate = Gate(tmp_path, "all")
    everything = client.submit(gate.command(), nodes=3, cpus=4, walltime="1h")
    for _ in range(3):
        gate.started()
    job = client.submit(["true"], cpus=2)
    until(lambda: job.why().reason != "not-considered", "never considered")
    answer = json.loads(hal("why", job.id, "--json").out)
    assert answer["reason"] in ("resources", "priority")
    assert "cpu" in answer["message"]
    gate.open(3)
    job.wait(DEADLINE_S, check=True)
    everything.wait(DEADLINE_S)
    gate.close()


def test_update_changes_what_waits(hal: Hal, client: Client) -> None:
    """Shown by `hal show`; an ended job refuses."""
    job = client.submit(["true"], hold=True)
    assert hal("update", job.id, "--priority", "9", "--walltime", "90m", "--name", "renamed").code == 0
    shown = json.loads(hal("show", job.id, "--json").out)
    assert (shown["priority"], shown["walltime"], shown["name"]) == (9, "1h30m", "renamed")
    job.release()
    job.wait(DEADLINE_S)
    assert hal("update", job.id, "--priority", "1").code == 6


def test_requeue_of_an_ended_job_is_a_new_attempt(hal: Hal, client: Client, tmp_path: Path) -> None:
    """It failed for want of a file; now the file is there."""
    job = client.submit(["cat", str(tmp_path / "late")])
    assert job.wait(DEADLINE_S).state == "failed"
    (tmp_path / "late").write_text("here\n")
    assert hal("requeue", job.id).code == 0
    assert api.Job(client, job.id).wait(DEADLINE_S).state == "succeeded"
    assert [attempt.state for attempt in job.task().attempts] == ["failed", "succeeded"]
    assert job.logs() == "here\n"


def test_requeue_of_a_running_job_starts_it_again(client: Client, gate: Gate) -> None:
    """The first attempt is stopped, the second runs to its end."""
    job = client.submit(gate.command())
    assert gate.started() == f"{job.id}.0.1.0"
    job.requeue()
    assert gate.started() == f"{job.id}.0.2.0"
    gate.open()
    assert job.wait(DEADLINE_S).state == "succeeded"


def test_cancel_ends_what_runs_and_what_waits(hal: Hal, client: Client, gate: Gate) -> None:
    """One by id; a second cancel is a conflict, an unknown id not found."""
    running = client.submit(gate.command())
    waiting = client.submit(["true"], after=running)
    gate.started()
    assert hal("cancel", running.id, waiting.id).code == 0
    states = {info.state for info in client.wait_all([running, waiting], DEADLINE_S)}
    assert states == {"cancelled"}
    assert hal("cancel", running.id).code == 6
    assert hal("cancel", "999999").code == 3


def test_cancel_of_one_task_leaves_the_others(hal: Hal, client: Client) -> None:
    """Task 1 of three is cancelled; the job is not a success, but the others are."""
    job = client.submit(["true"], array=3, hold=True)
    assert hal("cancel", f"{job.id}.1").code == 0
    job.release()
    job.wait(DEADLINE_S)
    assert [task.state for task in job.tasks()] == ["succeeded", "cancelled", "succeeded"]


def test_cancel_by_filter(hal: Hal, client: Client) -> None:
    """All held jobs of a name, without being asked."""
    jobs = client.submit([{"name": "by-filter", "command": ["true"], "hold": True}] * 3)
    assert hal("cancel", "--name", "by-filter", "-y").out.count("cancelled") == 3
    assert {info.state for info in client.wait_all(jobs, DEADLINE_S)} == {"cancelled"}


def test_logs_follow_until_the_end(shared_hal: LiveHal, client: Client, gate: Gate) -> None:
    """`hal logs -f` shows a line while the job still runs, and ends with the job."""
    job = client.submit(["sh", "-c", f"echo first; {gate.shell}; echo last; echo bad >&2"])
    gate.started()
    process = shared_hal.start("logs", "-f", job.id)
    assert process.stdout is not None
    assert process.stdout.readline() == "first\n"
    gate.open()
    out, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, out, err) == (0, "last\n", "bad\n")


def test_the_spec_of_a_job_is_shown_as_it_is_submitted_again(hal: Hal, client: Client, tmp_path: Path) -> None:
    """With what was changed since: the same job once more."""
    job = client.submit("echo $X", array=3, env={"X": "1"}, hold=True, walltime="1h", labels={"of": "spec"})
    assert hal("update", job.id, "--priority", "-3", "--walltime", "90m", "--name", "again").code == 0
    file = tmp_path / "again.yaml"
    file.write_text(hal("show", job.id, "--spec").out)
    again = client.job(hal("submit", file).out.strip())
    specs = [json.loads(hal("show", one.id, "--spec", "-o", "json").out) for one in (job, again)]
    assert specs[0] == specs[1]
    assert (specs[0]["priority"], specs[0]["walltime"], specs[0]["name"]) == (-3, "1h30m", "again")
    client.cancel(job.id, again.id)


def test_logs_by_task_stream_and_tail(hal: Hal, client: Client) -> None:
    """Options choose what is shown."""
    job = client.submit("seq 1 5; echo e$HAL_TASK >&2", array=2)
    job.wait(DEADLINE_S, check=True)
    assert hal("logs", f"{job.id}.1", "--stderr").out == "e1\n"
    assert hal("logs", f"{job.id}.0", "--stream", "stdout", "--tail", "2").out == "4\n5\n"
    assert hal("logs", f"{job.id}.0", "--tail", "0").out == ""
    assert hal("logs", f"{job.id}.7").code == 3


def test_wait_any_returns_with_the_first(hal: Hal, client: Client, gate: Gate) -> None:
    """One job ends, the other one runs."""
    slow, quick = client.submit(gate.command()), client.submit(["sh", "-c", "exit 3"])
    gate.started()
    ran = hal("wait", "--any", slow.id, quick.id)
    assert (ran.code, ran.out.split()[0]) == (3, quick.id)
    gate.open()
    slow.wait(DEADLINE_S)


def test_watching_shows_jobs_until_ctrl_c(shared_hal: LiveHal, client: Client, gate: Gate) -> None:
    """The table is drawn again when something changes; Ctrl-C is no error."""
    job = client.submit(gate.command(), name="watched")
    gate.started()
    with Terminal(shared_hal.command("jobs", "-w", "--name", "watched"), shared_hal.environment) as terminal:
        terminal.read_until("watched")
        gate.open()
        job.wait(DEADLINE_S)
        terminal.type("\x03")
        assert terminal.wait() == 0


def test_listings_filter_and_page(hal: Hal, client: Client) -> None:
    """1,234 held jobs of one name come back over three pages."""
    client.submit([{"name": "many", "command": ["true"], "hold": True, "labels": {"set": "a"}}] * 1_234)
    found = json.loads(hal("jobs", "--name", "many", "--limit", "0", "--json").out)
    assert len({info["id"] for info in found}) == 1_234
    assert len(json.loads(hal("jobs", "--label", "set=a", "--state", "held", "--json").out)) == 100
    client.cancel(name="many", state="held")


def test_events_tell_the_story_of_a_job(hal: Hal, client: Client) -> None:
    """Submitted, allocated, started, ended: in this order."""
    job = client.submit(["true"])
    job.wait(DEADLINE_S)
    kinds = [event.kind for event in client.events(job=job.id)]
    order = [kinds.index(kind) for kind in ("jobs-submitted", "attempts-allocated", "attempts-ended")]
    assert order == sorted(order)
    assert "jobs-submitted" in hal("events", "--job", job.id).out
    listed = yaml.safe_load(hal("events", "--job", job.id, "-o", "yaml").out)
    assert [event["kind"] for event in listed] == kinds


def test_followed_events_arrive_as_they_happen(client: Client) -> None:
    """The feed from now on: the next submission is in it."""
    feed = client.events(after=max((event.sequence for event in client.events()), default=0), follow=True)
    job = client.submit(["true"])
    assert next(event for event in feed if job.id in map(str, event.jobs)).kind == "jobs-submitted"


def test_status_and_nodes_show_what_there_is(hal: Hal) -> None:
    """Three nodes of four cores."""
    report = json.loads(hal("status", "--json").out)
    assert (report["controller"], [node["name"] for node in report["nodes"]]) == ("running", ["n1", "n2", "n3"])
    nodes = json.loads(hal("nodes", "--json").out)
    assert {node["capacity"]["cpu"] for node in nodes} == {4000}
    assert hal("nodes", "n9").code == 3


def test_submitting_again_under_the_same_key_submits_once(client: Client) -> None:
    """What a retry after a lost answer relies on."""
    first = client.submit(["true"], idempotency_key="e2e-once")
    assert client.submit(["true"], idempotency_key="e2e-once").id == first.id


def test_dry_run_stores_nothing(hal: Hal, client: Client) -> None:
    """And refuses what a submission would refuse."""
    before = [job.id for job in client.jobs(limit=1)]
    assert hal("submit", "--dry-run", "--", "true").code == 0
    assert hal("submit", "--dry-run", "-N", "9", "--", "true").code == 2
    assert [job.id for job in client.jobs(limit=1)] == before


def test_a_dry_run_says_when_a_job_would_start(hal: Hal, client: Client) -> None:
    """At once; behind what fills the nodes, when that is to end; later than it may begin; never by itself."""
    assert hal("submit", "--dry-run", "-c", "0.5", "--", "true").out.endswith("it would start at once\n")
    cpus = sum(node.capacity["cpu"] for node in client.nodes()) // 1_000
    names = [node.name for node in client.nodes()]
    each = int(cpus // len(names))
    full = client.submit(["sleep", "600"], nodes=len(names), cpus=each, walltime="1h")
    until(lambda: full.refresh().state == "running", "it does not run")
    asked = ("-c", each, "-N", len(names), "-t", "5m")
    ran = hal("submit", "--dry-run", *asked, "--", "true").out
    assert re.search(r"  it would start in (1h|59m\d+s), .* UTC \(the engine played forward by walltimes", ran), ran
    ran = hal("submit", "--dry-run", *asked, "-a", "5", "--begin", "now+2h", "--", "true").out
    assert re.search(r"  its first task would start in (2h|1h59m\d+s), ", ran), ran
    for words, text in ((("--hold",), "it is held until"), (("--after", full.id), "it waits for other jobs")):
        assert text in hal("submit", "--dry-run", *asked, *words, "--", "true").out
    found = client.dry_run([{"command": ["true"], "nodes": len(names), "request": {"cpu": each}}] * 2).forecasts
    assert [(one.now, one.starts_at_ms is None) for one in found] == [(False, False), (False, True)]
    assert client.dry_run([{"command": ["true"]}] * 9).forecasts == ()
    full.cancel()
    full.wait(DEADLINE_S)


BAD = [
    ({"command": ["a"], "queue": "nowhere"}, "nowhere"),
    ({"command": ["a"], "request": {"cpu": 99}}, "cpu"),
    ({"command": ["a"], "request": {"memory": "1TiB"}}, "memory"),
    ({"command": ["a"], "request": {"gpu": 1}}, "gpu"),
    ({"command": ["a"], "nodes": 4}, "4"),
    ({"command": ["a"], "constraints": ["gpu=a100"]}, "gpu"),
    ({"command": ["a"], "dependencies": ["999999"]}, "999999"),
]


@pytest.mark.parametrize(("spec", "named"), BAD)
def test_an_impossible_job_is_refused_at_submission(spec: dict[str, object], named: str, client: Client) -> None:
    """The error names what is impossible; a good job beside it is not submitted either."""
    before = next(client.jobs(limit=1)).id
    with pytest.raises(api.HALError) as caught:
        client.submit([{"command": ["true"]}, spec])
    assert named in str(caught.value)
    assert next(client.jobs(limit=1)).id == before


def test_a_cycle_is_found_before_anything_is_stored(client: Client) -> None:
    """a waits for b, b waits for c, c waits for a."""
    before = next(client.jobs(limit=1)).id
    ring = [{"name": a, "command": ["true"], "dependencies": [b]} for a, b in ("ab", "bc", "ca")]
    with pytest.raises(api.SpecError, match="wait for each other"):
        client.submit(ring)
    assert next(client.jobs(limit=1)).id == before


def test_an_id_that_is_none_is_a_usage_error(hal: Hal) -> None:
    """`hal show abc`, `hal logs 0`."""
    assert hal("show", "abc").code == 2
    assert hal("logs", "0").code == 2
    assert hal("show", "999999").code == 3


def test_a_token_that_is_given_with_a_socket_counts(shared_hal: LiveHal, tmp_path: Path) -> None:
    """Not whoever types the command; a wrong token is refused, and without one the kernel says who it is."""
    secret = shared_hal.run("api-token", "create", "robot", "--read-only", check=True).out.strip()
    socket = f"unix://{shared_hal.home.api_socket()}"
    by_token = {"HAL_URL": socket, "HAL_HOME": str(tmp_path), "HAL_TOKEN": secret}
    try:
        assert shared_hal.run("whoami", **by_token).out.split()[:4] == ["User", "robot", "Role", "user"]
        assert shared_hal.run("whoami", **by_token | {"HAL_TOKEN": ""}).out.split()[2:4] == ["Role", "admin"]
        assert shared_hal.run("jobs", **by_token | {"HAL_TOKEN": "wrong"}).code == 4
        with api.connect(url=socket, token=secret) as robot, pytest.raises(DeniedError, match="read-only"):
            robot.submit(["true"])
        refused = shared_hal.run("login", "--token", socket)
        assert (refused.code, "HAL_TOKEN" in refused.err) == (2, True)
    finally:
        shared_hal.run("api-token", "revoke", secret.split("_")[1], check=True)
