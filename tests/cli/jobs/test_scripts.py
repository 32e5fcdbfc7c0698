"""Scripts: their arguments, and the options in their own lines, under those of the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hal.cli.jobs.directives import HAL, SBATCH, read_directives
from hal.core.model import SpecError
from tests.cli.conftest import Ran, Serve
from tests.client.scripted_server import Asked, Reply, ScriptedServer, as_json

Hal = Callable[..., Ran]


@pytest.fixture
def controller(serve: Serve) -> ScriptedServer:
    """Accepts everything: jobs 1, 2, …; sends no mail."""

    def answer(asked: Asked) -> Reply:
        if asked.path.endswith("/notifications"):
            return as_json({"mail": False, "webhooks": False})
        return as_json({"ids": [str(n + 1) for n in range(len(asked.json["jobs"]))]}, 201)

    return serve(answer)


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], Path]:
    """`script(text)`: a file job.sh with `#!/bin/sh` above the text."""

    def write(text: str) -> Path:
        path = tmp_path / "job.sh"
        path.write_text(f"#!/bin/sh\n{text}")
        return path

    return write


def sent(controller: ScriptedServer) -> dict[str, Any]:
    """The one spec of the last submission."""
    found: list[dict[str, Any]] = controller.asked[-1].json["jobs"]
    assert len(found) == 1
    return found[0]


def test_the_words_behind_a_script_are_its_arguments(
    script: Callable[[str], Path], controller: ScriptedServer, hal: Hal
) -> None:
    """As with sbatch; options of HAL are read wherever they stand, behind -- nothing is."""
    hal("submit", script("echo\n"), "a", "-c", 2, "b.yaml", "--", "--lr", "0.1")
    spec = sent(controller)
    assert (spec["arguments"], spec["request"]["cpu"]) == (["a", "b.yaml", "--lr", "0.1"], "2")


def test_job_files_before_a_script_are_jobs_of_their_own(
    tmp_path: Path, script: Callable[[str], Path], controller: ScriptedServer, hal: Hal
) -> None:
    """The kind of each file decides, from the left."""
    (tmp_path / "a.json").write_text(json.dumps({"command": ["a"]}))
    assert hal("submit", tmp_path / "a.json", script("echo\n"), tmp_path / "a.json").out == "1\n2\n"
    assert [spec.get("arguments", []) for spec in controller.asked[-1].json["jobs"]] == [[], [str(tmp_path / "a.json")]]


def test_hal_lines_hold_options_as_they_are_typed(
    script: Callable[[str], Path], controller: ScriptedServer, hal: Hal
) -> None:
    """One or several a line, quoted as in a shell, with comments, up to the first command."""
    text = """
#HAL --name fit -c 4   # cores
#HAL --comment "two  words # kept" --env A=1
# plain comments and blank lines do not end them

#HAL -t 1:30:00 --env B=2 --umask 0027
#HALT is no directive
echo
#HAL --name late
"""
    assert hal("submit", script(text)).err == ""
    spec = sent(controller)
    assert (spec["name"], spec["request"]["cpu"], spec["comment"]) == ("fit", "4", "two  words # kept")
    assert (spec["walltime"], spec["env"]["A"], spec["env"]["B"]) == ("1h30m", "1", "2")
    assert spec["umask"] == "0027"


def test_what_is_typed_wins_over_the_lines_of_the_script(
    script: Callable[[str], Path], controller: ScriptedServer, hal: Hal
) -> None:
    """Variables and labels are added by name, everything else is replaced."""
    path = script("#HAL -c 4 -n fit --env A=1 --env B=2 --label x=1 --constraint ssd\necho\n")
    hal("submit", path, "-c", 2, "--env", "B=3", "--label", "y=2", "--constraint", "gpu=a100")
    spec = sent(controller)
    assert (spec["request"]["cpu"], spec["name"], spec["labels"]) == ("2", "fit", {"x": "1", "y": "2"})
    assert (spec["env"]["A"], spec["env"]["B"]) == ("1", "3")
    assert [one["label"] for one in spec["constraints"]] == ["gpu"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("#HAL --cpu 4", "job.sh: line 2: #HAL --cpu 4: no such option '--cpu'"),
        ("#HAL --nodes many", "line 2: #HAL --nodes many: invalid value for '-N' / '--nodes'"),
        ("#HAL --name 'fit", "line 2: #HAL: a quote is not closed"),
        ("#HAL --wait", "line 2: #HAL --wait: no such option '--wait'"),
        ("#HAL words", "line 2: #HAL words: got unexpected extra argument"),
        ("#HAL -t 30", "walltime: '30' has no unit"),
    ],
)
def test_a_line_that_makes_no_sense_is_refused_with_its_number(
    line: str, message: str, script: Callable[[str], Path], controller: ScriptedServer, hal: Hal
) -> None:
    """Nothing is submitted."""
    ran = hal("submit", script(f"{line}\necho\n"))
    assert (ran.code, message in ran.err, len(controller.asked)) == (2, True, 0), ran.err


def test_an_option_of_another_scheduler_in_a_line_of_hal_has_its_name_here_beside_it(
    script: Callable[[str], Path], controller: ScriptedServer, hal: Hal
) -> None:
    """As on the command line."""
    assert "hint: did you mean --walltime?" in hal("submit", script("#HAL --time 5m\necho\n")).err


def test_lines_of_slurm_are_not_read_beside_those_of_hal(
    script: Callable[[str], Path], controller: ScriptedServer, hal: Hal
) -> None:
    """A script may hold both, and run under either scheduler."""
    assert hal("submit", script("#SBATCH --exclusive -c 8\n#HAL -c 2\necho\n")).err == ""
    assert (sent(controller)["request"]["cpu"], "dialect" in sent(controller)) == ("2", False)


def test_lines_of_slurm_are_applied_and_listed(
    script: Callable[[str], Path], controller: ScriptedServer, hal: Hal
) -> None:
    """On stderr, so that the id alone is on stdout; what has no effect is listed as well."""
    ran = hal("submit", script("#SBATCH -c 2 --mem=500\n#SBATCH -t 10 --mail-type=END\nsrun ./fit\n"))
    assert ran.out == "1\n"
    assert ran.err.splitlines()[0].startswith("from #SBATCH: cpus 2, memory 500MiB, walltime 10m")
    assert ran.err.splitlines()[1] == "ignored: --mail-type (this HAL sends no mail; use hal wait, or hal events)"
    assert ran.err.splitlines()[2].startswith("line 4 calls srun")
    spec = sent(controller)
    assert (spec["request"], spec["walltime"]) == ({"cpu": "2", "memory": "500MiB"}, "10m")
    assert (spec["dialect"], spec["env"]["SLURM_CPUS_PER_TASK"]) == ("slurm", "2")


def test_a_script_of_several_nodes_that_calls_srun_is_refused_with_what_to_write(
    script: Callable[[str], Path], controller: ScriptedServer, hal: Hal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is no srun: it would run on the first node up to that line."""
    monkeypatch.setenv("PATH", "")
    ran = hal("submit", script("#SBATCH -N 2\n  srun ./fit\n"))
    assert (ran.code, len(controller.asked)) == (2, 0)
    assert "line 3 calls srun, which HAL has not: 'srun ./fit'" in ran.err
    assert "hal launch instead of srun" in ran.err


def test_a_script_of_several_nodes_that_calls_mpirun_is_remarked_upon(
    script: Callable[[str], Path], controller: ScriptedServer, hal: Hal
) -> None:
    """A site may have given it a way to the other nodes."""
    ran = hal("submit", script("#SBATCH -N 2\nmpirun ./fit\n"))
    assert "line 3 calls mpirun, which reaches other nodes through srun or ssh" in ran.err
    assert (sent(controller)["nodes"], sent(controller)["first_node"]) == (2, True)


def test_the_environment_is_passed_as_sbatch_does(
    script: Callable[[str], Path], controller: ScriptedServer, hal: Hal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it, but for what belongs to a step that submits another job."""
    monkeypatch.setenv("MODULEPATH", "/sw")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "7")
    hal("submit", script("#SBATCH -n 1\necho\n"))
    spec = sent(controller)
    assert (spec["env"]["MODULEPATH"], "SLURM_ARRAY_TASK_ID" in spec["env"]) == ("/sw", False)


def test_what_would_change_the_meaning_is_refused_by_name(
    script: Callable[[str], Path], controller: ScriptedServer, hal: Hal
) -> None:
    """All of it at once, with what to use instead; nothing is submitted."""
    ran = hal("submit", script("#SBATCH --mem=0\n#SBATCH --tmp=4G\necho\n"))
    assert (ran.code, len(controller.asked)) == (2, 0)
    assert "job.sh: #SBATCH --tmp, --mem=0: HAL has no such option" in ran.err
    assert "--mem=0: name an amount" in ran.err
    assert "--no-sbatch submits it without its #SBATCH lines" in ran.err


@pytest.mark.parametrize("words", [("--no-sbatch",), ("-m", "1GiB")], ids=["no-sbatch", "typed"])
def test_a_refused_line_can_be_left_out_or_decided(
    words: tuple[str, ...], script: Callable[[str], Path], controller: ScriptedServer, hal: Hal
) -> None:
    """By not reading the lines, or by the option of HAL that decides what it would have."""
    assert hal("submit", script("#SBATCH --mem=0\necho\n"), *words).code == 0


def test_lines_of_pbs_are_read_where_there_are_none_of_slurm(
    script: Callable[[str], Path], controller: ScriptedServer, hal: Hal
) -> None:
    """It starts in the home directory, as PBS does; scripts go to PBS_O_WORKDIR by themselves."""
    ran = hal(
        "submit", script("#PBS -N fit -l select=1:ncpus=2:mem=1gb,walltime=00:30:00\n#PBS -J 1-3\ncd $PBS_O_WORKDIR\n")
    )
    assert ran.err.startswith("from #PBS: walltime 30m, cpus 2, memory 1GiB, name fit, array 1-3")
    spec = sent(controller)
    assert (spec["dialect"], spec["walltime"], spec["array"]) == ("pbs", "30m", {"count": 3, "first": 1})


def test_a_line_counts_only_at_its_very_beginning() -> None:
    """`##SBATCH` and an indented one are comments, as for Slurm."""
    text = "#!/bin/sh\n##SBATCH -n 1\n #SBATCH -n 2\n#SBATCH\t-n 3\n#SBATCHX -n 4\n"
    assert read_directives(text, SBATCH) == [(4, ("-n", "3"))]


def test_no_script_has_more_lines_than_the_bound() -> None:
    """A file that is all directives ends in an error."""
    with pytest.raises(SpecError, match="line 1001: more than 1000 lines of #HAL"):
        read_directives("#HAL -c 1\n" * 1_001, HAL)


@pytest.mark.parametrize(
    ("file", "lines", "name"),
    [
        ("fit.sh", "#SBATCH -n 1", "fit.sh"),
        ("fit.sh", "#SBATCH -n 1 -J other", "other"),
        ("fit.sh", "#HAL -c 1", "fit"),
        ("fit", "#HAL -c 1", "fit"),
        ("my fit.sh", "#SBATCH -n 1", ""),
    ],
)
def test_a_job_is_named_after_its_script(
    tmp_path: Path, controller: ScriptedServer, hal: Hal, file: str, lines: str, name: str
) -> None:
    """As sbatch does where its lines are read; a file whose name no job can have names none."""
    (tmp_path / file).write_text(f"#!/bin/sh\n{lines}\ntrue\n")
    assert hal("submit", tmp_path / file).code == 0
    assert sent(controller).get("name", "") == name
