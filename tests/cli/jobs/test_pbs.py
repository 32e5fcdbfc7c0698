"""What each option of qsub becomes, with the meaning of PBS."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from hal.cli.jobs.directives import Directive
from hal.cli.jobs.foreign_options import Translation
from hal.cli.jobs.pbs import translated_pbs
from hal.core.model import SpecError


def translated(line: str, given: tuple[str, ...] = ()) -> Translation:
    """The translation of one line, submitted in /here by a user whose home is /home/ann."""
    lines = [Directive(2, tuple(shlex.split(line)))]
    return translated_pbs(lines, workdir="/here", home="/home/ann", host="login", given=given)


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ("-N fit -q short -A chem", {"name": "fit", "queue": "short", "account": "chem"}),
        ("-l select=1:ncpus=4:mem=8gb:ngpus=1", {"cpus": "4", "memory": "8GiB", "gpus": "1"}),
        ("-l nodes=1:ppn=4,mem=500mb", {"cpus": "4", "memory": "500MiB"}),
        ("-l walltime=01:30:00", {"walltime": "1h30m"}),
        ("-l walltime=90", {"walltime": "1m30s"}),
        ("-l mem=1073741824", {"memory": "1GiB"}),
        ("-l nodes=1:ssd", {"constraint": ("ssd",)}),
        ("-o out.txt -j oe", {"stdout": "/here/out.txt"}),
        ("-o host:/data/ -e /data/err", {"stdout": "/data/%x.o%j", "stderr": "/data/err"}),
        ("-o logs/ -J 1-3", {"stdout": "/here/logs/%x.o%j.%a", "array": "1-3"}),
        ("-o log.$PBS_JOBID", {"stdout": "/here/log.%j"}),
        ("-J 1-10:2", {"array": "1-10:2"}),
        ("-t 3", {"array": "3-3"}),
        ("-V", {"export_all": True}),
        ("-v A=1,B", {"env": ("A=1", "B")}),
        ("-h -r y", {"hold": True, "on_node_lost": "requeue"}),
        ("-a 203001311800", {"begin": "2030-01-31T18:00:00"}),
        ("-a 1800.30", {"begin": "18:00:30"}),
        ("-W depend=afterok:12:13", {"after": ("afterok:12 & afterok:13",)}),
        ("-W umask=027", {"umask": "027"}),
        ("-l software=matlab", {"licence": ("matlab",)}),
    ],
)
def test_an_option_of_qsub_becomes_one_of_hal(line: str, options: dict[str, Any]) -> None:
    """A bare mem is bytes, a bare walltime seconds; the job starts in the home directory."""
    made = translated(line)
    assert made.options == options | {"workdir": "/home/ann"}
    assert made.env == {"PBS_O_WORKDIR": "/here", "PBS_O_HOST": "login", "PBS_O_HOME": "/home/ann"}


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("-l select=2:ncpus=4", "-l select=2:ncpus=4: HAL gives no PBS_NODEFILE"),
        ("-l nodes=1:ppn=2+1:ppn=4", "HAL gives no PBS_NODEFILE"),
        ("-l place=excl", "-l place=excl"),
        ("-l arch=linux", "-l arch=linux: use #HAL --request, or --constraint"),
        ("-p 5", "-p 5: HAL's priorities have another scale"),
        ("-I", "-I: use hal run -it"),
        ("-W block=true", "-W block=true"),
    ],
)
def test_what_would_change_the_meaning_is_refused_with_what_to_use_instead(line: str, named: str) -> None:
    """By name."""
    with pytest.raises(SpecError) as refused:
        translated(line)
    assert named in refused.value.hint


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("-Y", "line 2: #PBS '-Y' is not an option of qsub"),
        ("-N", "line 2: #PBS -N needs a value"),
        ("job.sh", "line 2: #PBS 'job.sh' is not an option of qsub"),
        ("-l walltime", "line 2: #PBS -l: 'walltime' is not understood"),
        ("-l mem=8x", "-l mem: '8x' is not understood"),
        ("-l ncpus=0", "-l ncpus: '0' is not understood"),
        ("-j both", "-j: 'both' is not understood"),
        ("-a tomorrow", "-a: 'tomorrow' is not understood"),
    ],
)
def test_what_qsub_itself_would_refuse_is_refused(line: str, message: str) -> None:
    """With the line, or the option."""
    with pytest.raises(SpecError) as refused:
        translated(line)
    assert message in refused.value.message


def test_mail_and_the_like_are_named_as_ignored() -> None:
    """And what the command line has decided is not spoken of."""
    made = translated("-m abe -M ann@example.org -l place=pack -l walltime=10", given=("walltime",))
    assert [text.partition(" (")[0] for text in made.ignored] == ["-l place=pack", "-m"]
    assert made.applied == ["workdir /home/ann (PBS_O_WORKDIR is /here)"]
