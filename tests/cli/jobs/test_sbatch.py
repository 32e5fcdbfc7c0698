"""What each option of sbatch becomes, with Slurm's own meaning."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from hal.cli.jobs.directives import Directive
from hal.cli.jobs.foreign_mail import Mail
from hal.cli.jobs.foreign_options import Translation, host_list
from hal.cli.jobs.job_options import job_options
from hal.cli.jobs.sbatch import OPTIONS, translated_sbatch
from hal.core.model import SpecError


def translated(
    *lines: str, given: tuple[str, ...] = (), levels: tuple[str, ...] = (), elastic: bool = False
) -> Translation:
    """The translation of these lines, submitted in /here to a HAL with these levels."""
    words = [Directive(number, tuple(shlex.split(line))) for number, line in enumerate(lines, 2)]
    mail = Mail("ann", lambda: True)
    return translated_sbatch(
        words, workdir="/here", host="login", given=given, mail=mail, levels=lambda: levels, elastic=elastic
    )


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ("--cpus-per-task=4", {"cpus": "4"}),
        ("-c4", {"cpus": "4"}),
        ("-n 4", {"cpus": "4"}),
        ("--ntasks=4 --cpus-per-task=2", {"cpus": "8"}),
        ("-N 1 --ntasks-per-node=8", {"cpus": "8"}),
        ("-N1-1 -n2", {"cpus": "2"}),
        ("-N 2", {"nodes": 2, "first_node": True}),
        ("--exclusive --mem=0", {"exclusive": True}),
        ("-N 2-4 --ntasks-per-node=4", {"nodes": 2, "first_node": True, "cpus": "4"}),
        ("-N 2 -n 5 -c 2", {"nodes": 2, "first_node": True, "cpus": "6"}),
        ("-N 2 -n 6 --ntasks-per-node=4", {"nodes": 2, "first_node": True, "cpus": "4"}),
        ("-N 2 -G 4", {"nodes": 2, "first_node": True, "gpus": "2"}),
        ("-N 2 --gpus-per-task=1 -n 4", {"nodes": 2, "first_node": True, "gpus": "2", "cpus": "2"}),
        ("--mem=500", {"memory": "500MiB"}),
        ("--mem=4G", {"memory": "4GiB"}),
        ("--mem 1T", {"memory": "1TiB"}),
        ("--mem-per-cpu=500 -n 4", {"cpus": "4", "memory": "2000MiB"}),
        ("--mem-per-cpu=1G -c 8", {"cpus": "8", "memory": "8GiB"}),
        ("--gres=gpu:2 --mem-per-gpu=8G", {"gpus": "2", "memory": "16GiB"}),
        ("-t 30", {"walltime": "30m"}),
        ("-t 10:00", {"walltime": "10m"}),
        ("--time=1-12", {"walltime": "1d12h"}),
        ("--time=2-00:00:00", {"walltime": "2d"}),
        ("--time=UNLIMITED", {"walltime": "unlimited"}),
        ("-t 0", {"walltime": "unlimited"}),
        ("-p short -A chem -q high", {"queue": "short", "account": "chem", "qos": "high"}),
        ("--reservation=upkeep", {"booking": "upkeep"}),
        ("-J 'my job'", {"name": "my_job"}),
        ("-o slurm-%j.out", {"stdout": "slurm-%j.out"}),
        ("-o %x-%4j.out -e %x.err", {"stdout": "%x-%04j.out", "stderr": "%x.err"}),
        ("-a 1-3 -o %j.out", {"array": "1-3", "stdout": "%A_%a.out"}),
        ("-a 1-3 -o logs/%A/%2a_%N_%u.out", {"array": "1-3", "stdout": "logs/%A/%02a_%N_%u.out"}),
        ("-i 'cases/%%a'", {"stdin": "cases/%%a"}),
        ("-o a.log --open-mode=append", {"stdout": "a.log", "open_mode": "append"}),
        ("--array=5", {"array": "5-5"}),
        ("--array=0-15:4%2", {"array": "0-15:4%2"}),
        ("--array=1,3,5-9", {"array": "1,3,5-9"}),
        ("-d afterok:12", {"after": ("afterok:12",)}),
        ("-d afterok:12:13,afterany:14", {"after": ("afterok:12 & afterok:13 & afterany:14",)}),
        ("-d 'afterok:12:13?afternotok:14'", {"after": ("(afterok:12 & afterok:13) | afternotok:14",)}),
        ("-d singleton -J a", {"after": ("singleton",), "name": "a"}),
        ("--kill-on-invalid-dep=yes", {"on_dependency_failed": "cancel"}),
        ("--gres=gpu:a100:2", {"gpus": "2", "constraint": ("gpu=a100",)}),
        ("--gres=gpu:1g.10gb:2", {"gpus": "1g.10gb:2"}),
        ("--gpus=a100_3g.20gb:1", {"gpus": "3g.20gb:1", "constraint": ("gpu=a100",)}),
        ("--gres=gpu", {"gpus": "1"}),
        ("--gres=gpu:0", {}),
        ("--gres=none --gpus=0", {}),
        ("--gres=gpu:1,tape:2", {"gpus": "1", "request": ("tape=2",)}),
        ("-G 2", {"gpus": "2"}),
        ("--gpus-per-task=1 -n 2", {"gpus": "2", "cpus": "2"}),
        ("-G 2 --cpus-per-gpu=4", {"gpus": "2", "cpus": "8"}),
        ("-C 'ssd&intel'", {"constraint": ("ssd", "intel")}),
        ("-w n7", {"constraint": ("hal.node=n7",)}),
        ("-x n1,n[3-5]", {"exclude": ("n1", "n3", "n4", "n5")}),
        ("-b now+1hour", {"begin": "now+1hour"}),
        ("-b now+60", {"begin": "now+60s"}),
        ("--begin=16:00", {"begin": "16:00"}),
        ("-D /data", {"workdir": "/data"}),
        ("--requeue", {"on_node_lost": "requeue"}),
        ("--no-requeue", {"on_node_lost": "wait"}),
        ("-H", {"hold": True}),
        ("--nice", {"priority": -100}),
        ("--nice=-5", {"priority": 5}),
        ("--signal=B:USR1@120", {"signal": "USR1@120s"}),
        ("--signal=10", {"signal": "USR1@60s"}),
        ("-L matlab:2,ansys", {"licence": ("matlab:2", "ansys")}),
        ("--comment='for the paper'", {"comment": "for the paper"}),
        ("--job=fit --part=short", {"name": "fit", "queue": "short"}),
        ("--export=NONE", {}),
        ("--export=A,B=1,C=x,y", {"env": ("A", "B=1", "C=x", "y")}),
    ],
)
def test_an_option_of_sbatch_becomes_one_of_hal(line: str, options: dict[str, Any]) -> None:
    """A bare --mem is MiB, a bare --time minutes, --array=5 is one task, %j of an array is one task's number."""
    made = translated(line)
    passes_all = {} if "export" in line else {"export_all": True}
    assert made.options == options | passes_all


def test_a_range_of_nodes_is_a_base_and_extensions_for_a_script_that_knows_of_them() -> None:
    """The script runs once for each node more: one that does not look which it is gets the least, and a note."""
    known = translated("--nodes=2-8", elastic=True)
    assert (known.options["nodes"], known.options["first_node"], known.ignored) == ("2..8", True, [])
    plain = translated("--nodes=2-8")
    assert plain.options["nodes"] == 2
    assert plain.ignored == ["--nodes=2-8 (it gets 2; 8 only for a script that looks at HAL_ELASTIC)"]
    assert translated("--nodes=2-8 --array=0-3", elastic=True).options["nodes"] == 2
    with pytest.raises(SpecError, match="8-2"):
        translated("--nodes=8-2")


def test_later_lines_win_and_options_may_stand_together() -> None:
    """As for sbatch."""
    assert translated("-c 1 -t 5", "--time=10 -c2").options == {"cpus": "2", "walltime": "10m", "export_all": True}


def test_the_job_gets_the_variables_that_only_the_submitter_knows() -> None:
    """Only those that Slurm would set: SLURM_CPUS_PER_TASK without -c is unset."""
    made = translated("-n 4 --mem-per-cpu=1G", "--ntasks-per-node=4")
    assert made.env == {
        "SLURM_NTASKS": "4",
        "SLURM_NPROCS": "4",
        "OMP_NUM_THREADS": "1",
        "SLURM_TASKS_PER_NODE": "4",
        "SLURM_NTASKS_PER_NODE": "4",
        "SLURM_MEM_PER_CPU": "1024",
        "SLURM_SUBMIT_DIR": "/here",
        "SLURM_SUBMIT_HOST": "login",
    }


def test_tasks_of_several_nodes_are_counted_as_slurm_does() -> None:
    """SLURM_NTASKS of all nodes, SLURM_TASKS_PER_NODE of each."""
    made = translated("-N 2 --ntasks-per-node=4 -c 2")
    assert (made.env["SLURM_NTASKS"], made.env["SLURM_TASKS_PER_NODE"]) == ("8", "4(x2)")


def test_nodes_that_are_typed_run_the_script_on_the_first_one_too() -> None:
    """It is a script of Slurm's, whoever says how many nodes it has."""
    assert translated("-N 2", given=("nodes",)).options["first_node"] is True


@pytest.mark.parametrize(
    ("line", "variables"),
    [
        ("-c 2", {"CPUS_PER_TASK": "2", "TASKS_PER_NODE": "1"}),
        ("--gpus=a100:2 --mem-per-gpu=50M", {"GPUS": "a100:2", "MEM_PER_GPU": "50", "TASKS_PER_NODE": "1"}),
        ("--gres=gpu:1 --cpus-per-gpu=2", {"CPUS_PER_GPU": "2", "TASKS_PER_NODE": "2"}),
        ("--export=NONE", {"EXPORT_ENV": "NONE", "GET_USER_ENV": "1", "TASKS_PER_NODE": "1"}),
        ("--export=ALL", {"EXPORT_ENV": "ALL", "TASKS_PER_NODE": "1"}),
    ],
)
def test_variables_are_those_that_a_real_slurm_sets(line: str, variables: dict[str, str]) -> None:
    """Seen there (tests/e2e/test_slurm_peer.py): no SLURM_NTASKS without --ntasks, whatever else is asked for."""
    found = {name.removeprefix("SLURM_"): value for name, value in translated(line).env.items()}
    apart = {"SUBMIT_DIR", "SUBMIT_HOST", "GPUS_ON_NODE"}
    assert {name: value for name, value in found.items() if name not in apart} == variables


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("--nodes=2 --gpus=3", "--gpus=3: give --gpus-per-node"),
        ("--exclusive=user", "--exclusive=user: HAL knows whole nodes"),
        ("--mem=0", "--mem=0: name an amount"),
        ("-p short,long", "--partition=short,long: name one queue"),
        ("-C 'a|b'", "--constraint=a|b"),
        ("-w n[1-2]", "--nodelist=n[1-2]"),
        ("-d expand:12", "--dependency=expand:12"),
        ("-d after:12+5", "--dependency=after:12+5: HAL knows no delay"),
        ("--signal=R:USR1@60", "--signal=R:USR1@60"),
        ("-o %b.out", "--output=%b.out: HAL has no pattern %b"),
        ("--deadline=18:00", "--deadline: Slurm cancels at it"),
        ("-L a@server", "--licenses=a@server"),
        ("hetjob", "hetjob: write the parts as groups: hal submit -c 2 : -N 4 -c 8 SCRIPT"),
    ],
)
def test_what_would_change_the_meaning_is_refused_with_what_to_use_instead(line: str, named: str) -> None:
    """By name."""
    with pytest.raises(SpecError) as refused:
        translated(line)
    assert named in refused.value.hint


@pytest.mark.parametrize(
    ("line", "given"),
    [("-N 2 -G 3", "gpus"), ("-C 'a|b'", "constraint"), ("--mem=0", "memory"), ("--exclusive=user", "exclusive")],
)
def test_what_is_typed_decides_instead_of_a_line_that_would_be_refused(line: str, given: str) -> None:
    """The option is on the command line of hal submit, so nothing of the script's is left to refuse."""
    assert given not in translated(line, given=(given,)).options


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--colour=red", "line 2: #SBATCH --colour is not an option of sbatch"),
        ("--cpu=4", "line 2: #SBATCH --cpu is short for --cpus-per-gpu, --cpus-per-task"),
        ("-Y", "line 2: #SBATCH -Y is not an option of sbatch"),
        ("-c", "line 2: #SBATCH -c needs a value"),
        ("script.sh", "line 2: #SBATCH 'script.sh' is not an option"),
        ("--hold=yes", "line 2: #SBATCH --hold=yes: 'yes' is not understood"),
        ("-c many", "--cpus-per-task: 'many' is not understood"),
        ("-n 0", "--ntasks: '0' is not understood"),
        ("--mem=lots", "--mem: 'lots' is not understood"),
        ("-t soon", "--time: 'soon' is not a duration"),
        ("-d afterok", "--dependency: 'afterok' is not understood"),
        ("-d 'afterok:1,afterok:2?afterok:3'", "is not understood"),
        ("-x n[1-", "--exclude: 'n[1-' is not understood"),
        ("-N 2 --switches=few", "--switches: 'few' is not understood"),
        ("--nice=much", "--nice: 'much' is not understood"),
        ("-o a --open-mode=both", "--open-mode: 'both' is not understood"),
    ],
)
def test_what_sbatch_itself_would_refuse_is_refused(line: str, message: str) -> None:
    """With the line where it stands, or the option."""
    with pytest.raises(SpecError) as refused:
        translated(line)
    assert message in refused.value.message


@pytest.mark.parametrize("name", sorted(name for name, option in OPTIONS.items() if option.ignored))
def test_what_only_concerns_notes_or_threads_is_named_as_ignored(name: str) -> None:
    """It is listed, and the job is submitted."""
    value = "" if OPTIONS[name].value != "required" else "=1"
    made = translated(f"--{name}{value}")
    assert made.ignored == [f"--{name} ({OPTIONS[name].ignored})"]


@pytest.mark.parametrize("name", sorted(name for name, option in OPTIONS.items() if option.refused))
def test_every_option_that_is_refused_says_what_to_use_instead(name: str) -> None:
    """And names an option of HAL that decides, where there is one."""
    field = OPTIONS[name].field
    with pytest.raises(SpecError) as refused:
        translated(f"--{name}" + ("=1" if OPTIONS[name].value == "required" else ""))
    assert f"--{name}: {OPTIONS[name].refused}" in refused.value.hint
    assert not field or field in _PARAMETERS


def test_every_option_that_is_applied_has_an_effect() -> None:
    """None of the table is read and then forgotten."""
    values = {"time": "5", "begin": "noon", "array": "1-2", "dependency": "afterok:1", "kill-on-invalid-dep": "yes"}
    values |= {"mem": "1", "mem-per-cpu": "1", "mem-per-gpu": "1", "gres": "gpu:1", "cpus-per-gpu": "2 -G 2"}
    values |= {"open-mode": "append -o a", "nodes": "1 -n 2", "signal": "USR1"}
    values |= {"switches": "1 -N 2", "mail-type": "END", "mail-user": "bob --mail-type=END"}
    for name, option in OPTIONS.items():
        if option.ignored or option.refused or name == "export":
            continue
        value = (
            ""
            if option.value == "none" or name == "exclusive"
            else f" {values.get(name, '2')}"
            if option.value == "required"
            else "=2"
        )
        assert len(translated(f"--{name}{value}", levels=("switch",)).applied) > 1, name


@pytest.mark.parametrize(
    ("line", "levels", "given"),
    [
        ("-N 2 --switches=1", ("rack", "switch"), ()),
        ("--switches=1", ("switch",), ("nodes",)),
    ],
)
def test_one_switch_is_where_the_nodes_must_be(line: str, levels: tuple[str, ...], given: tuple[str, ...]) -> None:
    """However many nodes are typed."""
    assert translated(line, levels=levels, given=given).options["within"] == "switch"


@pytest.mark.parametrize(("time", "packed"), [("30:00", "switch:30m"), ("5", "switch:5m"), ("1-0", "switch:1d")])
def test_one_switch_for_some_time_is_where_the_nodes_are_packed(time: str, packed: str) -> None:
    """Then the job starts anywhere, as in Slurm; a bare number is minutes there."""
    assert translated(f"-N 2 --switches=1@{time}", levels=("switch",)).options["pack"] == packed


@pytest.mark.parametrize(
    ("line", "levels", "why"),
    [
        ("-N 2 --switches=1", ("zone", "rack"), "the topology of this HAL has no switches"),
        ("-N 2 --switches=1", (), "the topology of this HAL has no switches"),
        ("-N 4 --switches=2", ("switch",), "HAL takes as few switches as it can"),
        ("--switches=1", ("switch",), "one node is on one switch"),
    ],
)
def test_switches_that_slurm_would_only_prefer_are_named_as_ignored(
    line: str, levels: tuple[str, ...], why: str
) -> None:
    """Two switches are no domain."""
    made = translated(line, levels=levels)
    assert not {"within", "pack"} & set(made.options)
    assert made.ignored[0].startswith(f"--switches ({why}")


_PARAMETERS = {parameter.name for parameter in job_options(lambda **given: None).__click_params__}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("a", ["a"]),
        ("a,b", ["a", "b"]),
        ("n[08-10]x", ["n08x", "n09x", "n10x"]),
        ("n[1,3-4],m", ["n1", "n3", "n4", "m"]),
    ],
)
def test_a_list_of_hosts_is_expanded(text: str, hosts: list[str]) -> None:
    """Zeros in front are kept."""
    assert host_list("-x", text) == hosts


@pytest.mark.parametrize("text", ["", "n[1-", "n[a-b]", "n[1-]", "n[-1]", "n[1-99999999]", "n[2-1]", ","])
def test_what_is_no_list_of_hosts_is_refused(text: str) -> None:
    """Neither half of a range, nor a million nodes."""
    with pytest.raises(SpecError, match="is not understood"):
        host_list("-x", text)
