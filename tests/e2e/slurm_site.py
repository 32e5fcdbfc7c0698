"""A Slurm of one node: started, given scripts, and ended again, all inside of namespaces of its own.

`run_slurm` runs this file as a script in a new mount, network, UTS and PID namespace: it starts munged, slurmctld and
slurmd there, submits what it is given, waits until nothing is left in the queue, and writes what Slurm says of each.
Nothing of the machine's own Slurm, if it has one, is used or touched; with the script everything ends.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "munged")
ADDRESS = "10.99.0.1"
START_S = 120.0
RUN_S = 300.0
LIVE = "PENDING,CONFIGURING,RUNNING,SUSPENDED,COMPLETING"
CONFIG = """\
ClusterName=peer
SlurmctldHost=n1({address})
SlurmUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={here}/munge.sock
StateSaveLocation={here}/state
SlurmdSpoolDir={here}/spool
SlurmctldPidFile={here}/slurmctld.pid
SlurmdPidFile={here}/slurmd.pid
SlurmctldLogFile={here}/slurmctld.log
SlurmdLogFile={here}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
SlurmdParameters=config_overrides
MpiDefault=none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
GresTypes=gpu
MailProg=/bin/true
NodeName=n1 NodeAddr={address} CPUs=8 RealMemory=8000 Gres=gpu:a100:2 Feature=ssd,avx512
NodeName=old[01-03] NodeAddr={address} CPUs=1 State=DOWN
PartitionName=batch Nodes=n1 Default=YES
PartitionName=gpu Nodes=n1
"""


def run_slurm(
    directory: Path, submissions: dict[str, list[str]], workdir: Path, environment: dict[str, str]
) -> dict[str, dict[str, Any]]:
    """Run these submissions by a Slurm of one node; returns by name: `id`, and of each of its tasks the fields of
    `scontrol show job`; `error` where `sbatch` refused it.

    Args:
        directory: for its configuration, logs and state.
        submissions: by name, words after `sbatch`; `{NAME}` is the id of an earlier one.
        workdir: where they are submitted.
        environment: of whoever submits them.
    """
    (directory / "submissions.json").write_text(json.dumps(submissions))
    words = ["unshare", "--mount", "--net", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
    done = subprocess.run(
        [*words, sys.executable, __file__, str(directory), str(workdir)],
        capture_output=True,
        text=True,
        timeout=START_S + RUN_S + 30,
        stdin=subprocess.DEVNULL,
        env=environment,
        check=False,
    )
    logs = "\n".join(f"{log.name}:\n{log.read_text()[-3_000:]}" for log in directory.glob("*.log"))
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{logs}"
    found: dict[str, dict[str, Any]] = json.loads((directory / "found.json").read_text())
    return found


def _serve(here: Path, workdir: Path) -> None:
    """Inside of the namespaces."""
    _sh("hostname", "n1")
    _sh("ip", "link", "set", "lo", "up")
    _sh("ip", "address", "add", f"{ADDRESS}/32", "dev", "lo")  # with 127.0.0.1 alone, names are not resolved
    (here / "hosts").write_text(f"127.0.0.1 localhost\n{ADDRESS} n1\n")
    _sh("mount", "--bind", str(here / "hosts"), "/etc/hosts")
    for name in ("state", "spool"):
        (here / name).mkdir()
    for number in range(2):
        _sh("mknod", str(here / f"gpu{number}"), "c", "1", "3")
    (here / "slurm.conf").write_text(CONFIG.format(here=here, address=ADDRESS))
    (here / "gres.conf").write_text(f"NodeName=n1 Name=gpu Type=a100 File={here}/gpu[0-1]\n")
    (here / "munge.key").write_bytes(os.urandom(1024))
    (here / "munge.key").chmod(0o400)
    os.environ["SLURM_CONF"] = str(here / "slurm.conf")
    files = [f"--{word}-file={here}/munge.{word}" for word in ("key", "pid", "log", "seed")]
    with open(here / "munged.log", "wb") as log:
        subprocess.Popen(
            ["munged", "--foreground", "--force", f"--socket={here}/munge.sock", *files], stdout=log, stderr=log
        )
    _until(lambda: (here / "munge.sock").exists(), "munged does not answer")
    with open(here / "daemons.log", "wb") as log:
        for words in (["slurmctld", "-D", "-c"], ["slurmd", "-D", "-N", "n1"]):
            subprocess.Popen(words, stdout=log, stderr=log)
    _until(lambda: _sh("sinfo", "-h", "-n", "n1", "-o", "%T", check=False).startswith("idle"), "n1 is not idle")
    ids: dict[str, str] = {}
    found: dict[str, dict[str, Any]] = {}
    os.chdir(workdir)
    for name, words in json.loads((here / "submissions.json").read_text()).items():
        ran = subprocess.run(
            ["sbatch", "--parsable", *(_filled(word, ids) for word in words)],
            capture_output=True,
            text=True,
            check=False,
        )
        ids[name] = ran.stdout.strip().split(";")[0]
        found[name] = {"id": int(ids[name] or 0), "error": ran.stderr.strip(), "tasks": []}
    _until(lambda: not _sh("squeue", "-h", "-t", LIVE, "-o", "%i"), "jobs are left", RUN_S)
    for line in _sh("scontrol", "-o", "show", "job").splitlines():
        fields = dict(word.partition("=")[::2] for word in line.split(" ") if "=" in word)
        array = int(fields.get("ArrayJobId", fields["JobId"]))
        for one in found.values():
            if one["id"] == array:
                one["tasks"].append(fields)
    (here / "found.json").write_text(json.dumps(found))


def _filled(word: str, ids: dict[str, str]) -> str:
    for name, number in ids.items():
        word = word.replace(f"{{{name}}}", number)
    return word


def _sh(*words: str, check: bool = True) -> str:
    return subprocess.run(words, check=check, capture_output=True, text=True, timeout=30).stdout


def _until(holds: Any, otherwise: str, most_s: float = START_S) -> None:
    deadline = time.monotonic() + most_s
    while not holds():
        if time.monotonic() > deadline:
            sys.exit(f"{otherwise}\n{_sh('sinfo', '-lN', check=False)}{_sh('squeue', '-t', 'all', check=False)}")
        time.sleep(0.05)


if __name__ == "__main__":
    _serve(Path(sys.argv[1]), Path(sys.argv[2]))
