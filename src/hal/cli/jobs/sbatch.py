"""`#SBATCH` lines: what each option of Slurm's sbatch becomes.

Pure. The meaning is Slurm's: a bare `--mem` is MiB, a bare `--time` minutes, `--array=5` one task of index 5, `%j` the
number of a single task. Source: the manual page of sbatch, Slurm 24.05.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple

from hal.cli.jobs.directives import SBATCH, Directive
from hal.cli.jobs.foreign_mail import NONE, Mail, slurms_mail
from hal.cli.jobs.foreign_options import Translation, bad, count, duration, host_list, job_name, size
from hal.cli.jobs.slurm_switches import slurms_switches
from hal.core.model import SpecError, format_size
from hal.core.model.gpu_slices import slice_type

_SIZES: Final = {
    "k": 1 << 10,
    "kb": 1 << 10,
    "m": 1 << 20,
    "mb": 1 << 20,
    "g": 1 << 30,
    "gb": 1 << 30,
    "t": 1 << 40,
    "tb": 1 << 40,
}
_SIGNALS: Final = {1: "HUP", 2: "INT", 3: "QUIT", 10: "USR1", 12: "USR2", 14: "ALRM", 15: "TERM", 18: "CONT"}
_UNLIMITED: Final = ("infinite", "unlimited", "0", "-1")

Values = Mapping[str, str]
"""By long names; '' of flags."""


class _Option(NamedTuple):
    short: str = ""
    value: str = "required"
    """required, optional or none."""
    ignored: str = ""
    """Why it has no effect here."""
    refused: str = ""
    """What to use instead."""
    field: str = ""
    """HAL's option that decides, if the command line has it."""


_THREADS: Final = "HAL does not bind threads to cores"
_NOT_HERE: Final = "it has no counterpart in HAL"

OPTIONS: Final[Mapping[str, _Option]] = {
    # what is applied
    "account": _Option("A"),
    "array": _Option("a"),
    "begin": _Option("b"),
    "chdir": _Option("D"),
    "comment": _Option(),
    "constraint": _Option("C"),
    "cpus-per-gpu": _Option(),
    "cpus-per-task": _Option("c"),
    "dependency": _Option("d"),
    "error": _Option("e"),
    "exclude": _Option("x"),
    "exclusive": _Option("", "optional"),
    "export": _Option(),
    "gpus": _Option("G"),
    "gpus-per-node": _Option(),
    "gpus-per-task": _Option(),
    "gres": _Option(),
    "hold": _Option("H", "none"),
    "input": _Option("i"),
    "job-name": _Option("J"),
    "kill-on-invalid-dep": _Option(),
    "licenses": _Option("L"),
    "mail-type": _Option(),
    "mail-user": _Option(),
    "mem": _Option(),
    "mem-per-cpu": _Option(),
    "mem-per-gpu": _Option(),
    "nice": _Option("", "optional"),
    "no-requeue": _Option("", "none"),
    "nodelist": _Option("w"),
    "nodes": _Option("N"),
    "ntasks": _Option("n"),
    "ntasks-per-node": _Option(),
    "open-mode": _Option(),
    "output": _Option("o"),
    "partition": _Option("p"),
    "qos": _Option("q"),
    "requeue": _Option("", "none"),
    "reservation": _Option(),
    "signal": _Option(),
    "switches": _Option(),
    "time": _Option("t"),
    # what only concerns notes, accounting, or the placement of threads
    "acctg-freq": _Option("", "required", _NOT_HERE),
    "contiguous": _Option("", "none", "HAL knows no order of nodes"),
    "cores-per-socket": _Option("", "required", _THREADS),
    "cpu-freq": _Option("", "required", "HAL sets no frequencies"),
    "delay-boot": _Option("", "required", _NOT_HERE),
    "distribution": _Option("m", "required", _THREADS),
    "extra-node-info": _Option("B", "required", _THREADS),
    "get-user-env": _Option("", "optional", "use --export"),
    "gpu-bind": _Option("", "required", _THREADS),
    "gpu-freq": _Option("", "required", "HAL sets no frequencies"),
    "gres-flags": _Option("", "required", _THREADS),
    "hint": _Option("", "required", _THREADS),
    "ignore-pbs": _Option("", "none", "#PBS lines are not read beside #SBATCH"),
    "mem-bind": _Option("", "required", _THREADS),
    "no-bell": _Option("", "none", _NOT_HERE),
    "ntasks-per-core": _Option("", "required", _THREADS),
    "ntasks-per-socket": _Option("", "required", _THREADS),
    "oversubscribe": _Option("s", "none", "nodes are shared in HAL"),
    "parsable": _Option("", "none", "hal submit prints the id alone"),
    "prefer": _Option("", "required", "HAL knows no wishes, only constraints"),
    "profile": _Option("", "required", _NOT_HERE),
    "propagate": _Option("", "optional", "limits of the shell are not passed on"),
    "quiet": _Option("Q", "none", "use hal submit -q"),
    "sockets-per-node": _Option("", "required", _THREADS),
    "spread-job": _Option("", "none", _NOT_HERE),
    "thread-spec": _Option("", "required", _THREADS),
    "threads-per-core": _Option("", "required", _THREADS),
    "time-min": _Option("", "required", "--time holds"),
    "use-min-nodes": _Option("", "none", _NOT_HERE),
    "verbose": _Option("v", "none", _NOT_HERE),
    "wckey": _Option("", "required", "use #HAL --label"),
    # what would change what the job does
    "batch": _Option("", "required", "", "use #HAL --constraint"),
    "bb": _Option("", "required", "", "stage data in the script, or with #HAL --gate"),
    "bbf": _Option("", "required", "", "stage data in the script, or with #HAL --gate"),
    "cluster-constraint": _Option("", "required", "", "choose the HAL with --url"),
    "clusters": _Option("M", "required", "", "choose the HAL with --url"),
    "container": _Option("", "required", "", "start the container in the script"),
    "container-id": _Option("", "required", "", "start the container in the script"),
    "core-spec": _Option("S", "required", "", "ask for cores with --cpus-per-task"),
    "deadline": _Option("", "required", "", "Slurm cancels at it; HAL's --deadline only orders jobs", "deadline"),
    "export-file": _Option("", "required", "", "use hal submit --env, or --export-all", "env"),
    "gid": _Option("", "required", "", "jobs run with the groups of their user"),
    "immediate": _Option("I", "optional", "", "use hal submit --dry-run first"),
    "mcs-label": _Option("", "required", "", "use queues with --users or --accounts"),
    "mincpus": _Option("", "required", "", "ask for cores with --cpus-per-task", "cpus"),
    "network": _Option("", "required", "", "use #HAL --constraint"),
    "no-kill": _Option("k", "optional", "", "a gang ends with its first lost node"),
    "nodefile": _Option("F", "required", "", "use #HAL --constraint hal.node=NAME", "constraint"),
    "ntasks-per-gpu": _Option("", "required", "", "give --ntasks and --gpus"),
    "overcommit": _Option("O", "none", "", "ask for parts of cores: #HAL --cpus 0.5", "cpus"),
    "priority": _Option("", "required", "", "HAL's priorities have another scale: #HAL --priority N", "priority"),
    "reboot": _Option("", "none", "", "ask an operator"),
    "tmp": _Option("", "required", "", "#HAL --request disk=SIZE, where nodes offer it", "request"),
    "tres-per-task": _Option("", "required", "", "give --cpus-per-task and --gpus"),
    "uid": _Option("", "required", "", "use #HAL --user", "user"),
    "wait": _Option("W", "none", "", "use hal submit --wait"),
    "wait-all-nodes": _Option("", "required", "", "all nodes of a gang start at once"),
    "wrap": _Option("", "required", "", "write the command into the script, or hal submit -- COMMAND"),
    "x11": _Option("", "optional", "", "use hal run -it, or hal forward"),
}
"""Every option of sbatch, by its long name."""
_BY_SHORT: Final = {option.short: name for name, option in OPTIONS.items() if option.short}


def translated_sbatch(
    lines: Sequence[Directive],
    *,
    workdir: str,
    host: str,
    given: Collection[str] = (),
    mail: Mail = NONE,
    levels: Callable[[], Sequence[str]] = tuple,
    elastic: bool = False,
) -> Translation:
    """Translate the `#SBATCH` lines of a script.

    Args:
        workdir: where it is submitted; the job finds it in SLURM_SUBMIT_DIR.
        host: where it is submitted, for SLURM_SUBMIT_HOST.
        given: names of HAL's options on the command line, which win.
        mail: to whom mail goes, and whether any is sent.
        levels: asks the HAL for the levels of its topology; called if a line asks for switches.
        elastic: the script knows that it may be run as an extension: a range of nodes means extensions then.
    Raises:
        SpecError: an option that sbatch has not, or a value that it would refuse, with the line; or what would change
            the meaning of the job.
    """
    made = Translation(SBATCH, given)
    values: dict[str, str] = {}
    for line in lines:
        if line.words[:1] in (("hetjob",), ("packjob",)):
            made.refuse(line.words[0], "write the parts as groups: hal submit -c 2 : -N 4 -c 8 SCRIPT")
            continue
        try:
            values |= _options(line.words)
        except SpecError as error:
            raise SpecError(f"line {line.line}: {SBATCH} {error.message}", hint=error.hint) from None
    for name in values:
        option = OPTIONS[name]
        if option.ignored:
            made.ignore(_written(name), option.ignored)
        elif option.refused:
            made.refuse(_written(name), option.refused, unless=option.field)
    for translate in (_resources, _when, _placed, _streams, _rest):
        translate(made, values)
    if "nodes" in values:
        _range_of_nodes(made, values, elastic=elastic)
    if "switches" in values:
        several = _nodes(values) > 1 or "nodes" in made.given
        slurms_switches(made, values["switches"], several=several, levels=levels)
    slurms_mail(made, mail, values.get("mail-type"), values.get("mail-user", ""))
    _variables(made, values, workdir, host)
    made.finish()
    return made


def _written(name: str) -> str:
    return f"--{name}"


def _options(words: Sequence[str]) -> dict[str, str]:
    """The options of one line, by their long names; as getopt_long reads them.

    Raises:
        SpecError: one that sbatch has not, or without its value.
    """
    found: dict[str, str] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            name = _full_name(name)
            form = OPTIONS[name].value
            if form == "required" and not equals:
                value = _next(rest, word)
            elif form == "none" and equals:
                bad(word, value, "it takes no value")
            found[name] = value
            continue
        if not word.startswith("-") or word == "-":
            raise SpecError(f"'{word}' is not an option", hint="options begin with - or --")
        cluster = word[1:]
        while cluster:
            name = _BY_SHORT.get(cluster[0], "")
            if not name:
                raise SpecError(f"-{cluster[0]} is not an option of sbatch", hint="see man sbatch")
            form, value, cluster = OPTIONS[name].value, cluster[1:], cluster[1:]
            if form == "none":
                found[name] = ""
                continue
            found[name] = value.removeprefix("=") if value or form == "optional" else _next(rest, word)
            break
    return found


def _full_name(name: str) -> str:
    if name in OPTIONS:
        return name
    begin = [full for full in OPTIONS if full.startswith(name)] if name else []
    if len(begin) != 1:
        what = "is not an option of sbatch" if not begin else f"is short for {', '.join(map(_written, begin[:4]))}"
        raise SpecError(f"--{name} {what}", hint="see man sbatch, or docs/from-slurm.md")
    return begin[0]


def _next(rest: list[str], word: str) -> str:
    if not rest:
        raise SpecError(f"{word} needs a value", hint=f"write it behind the option: {word} VALUE")
    return rest.pop(0)


def _counts(made: Translation, values: Values, *names: str) -> dict[str, int]:
    return {name: count(_written(name), values[name]) for name in names if name in values}


def _nodes(values: Values) -> int:
    """The least of `--nodes=LEAST[-MOST]`."""
    if "nodes" not in values:
        return 1
    least, dash, most = values["nodes"].partition("-")
    if dash:
        count("--nodes", most)
    return count("--nodes", least)


def _range_of_nodes(made: Translation, values: Values, *, elastic: bool) -> None:
    """`--nodes=2-8`: with Slurm what there is when the job starts. The script runs once for each node more here, so
    only one that looks which it is has any."""
    least, _, text = values["nodes"].partition("-")
    most = count("--nodes", text) if text else 0
    if not text or most == _nodes(values):
        return
    if most < _nodes(values):
        bad("--nodes", values["nodes"], "the larger number comes last")
    if elastic and "array" not in values:
        made.put("nodes", f"{least}..{most}", f"up to {most} nodes while there is room")
    elif "nodes" not in made.given:
        why = "an array has no more" if "array" in values else f"{most} only for a script that looks at HAL_ELASTIC"
        made.ignore(f"--nodes={values['nodes']}", f"it gets {least}; {why}")


def _resources(made: Translation, values: Values) -> None:
    """Nodes, tasks, cores, memory, devices: of each node, the first of which runs the script."""
    nodes = _nodes(values)
    if nodes > 1:
        made.put("nodes", nodes, f"nodes {nodes} (the script runs on the first)")
    if nodes > 1 or "nodes" in made.given:
        made.put("first_node", True)
    numbers = _counts(made, values, "ntasks", "ntasks-per-node", "cpus-per-task", "cpus-per-gpu")
    tasks = numbers.get("ntasks-per-node", 1) if nodes > 1 else 1
    if "ntasks" in numbers and (nodes == 1 or "ntasks-per-node" not in numbers):
        tasks = -(-numbers["ntasks"] // nodes)
    elif nodes == 1:
        tasks = numbers.get("ntasks-per-node", 1)
    gpus = _devices(made, values, tasks, nodes)
    per_task = numbers.get("cpus-per-task", 1)
    cpus = max(tasks * per_task, numbers.get("cpus-per-gpu", 0) * gpus)
    if tasks > 1:
        where = "on each node" if nodes > 1 else "on one node"
        what = f"cpus {cpus} ({tasks} tasks {where}{f', {per_task} cores each' if per_task > 1 else ''})"
        made.put("cpus", str(cpus), what)
    elif cpus > 1 or "cpus-per-task" in values:
        made.put("cpus", str(cpus), f"cpus {cpus}")
    if values.get("exclusive"):
        made.refuse(
            f"--exclusive={values['exclusive']}", "HAL knows whole nodes: --exclusive alone", unless="exclusive"
        )
    elif "exclusive" in values:
        made.put("exclusive", True, "exclusive (whole nodes)")
    _memory(made, values, cpus, gpus)
    each = tasks
    if "ntasks" in numbers or "ntasks-per-node" in numbers:
        total = str(numbers.get("ntasks", tasks * nodes))
        made.env |= {"SLURM_NTASKS": total, "SLURM_NPROCS": total}
    elif "cpus-per-gpu" in numbers:
        each = cpus // per_task  # as Slurm counts them
    made.env["SLURM_TASKS_PER_NODE"] = f"{each}(x{nodes})" if nodes > 1 else str(each)
    if tasks > 1:
        made.env["OMP_NUM_THREADS"] = str(per_task)  # HAL would give each rank a thread for every core of the job
    for name in ("cpus-per-task", "ntasks-per-node", "cpus-per-gpu"):
        if name in numbers:
            made.env[_variable(name)] = str(numbers[name])


def _memory(made: Translation, values: Values, cpus: int, gpus: int) -> None:
    for name, times in (("mem", 1), ("mem-per-cpu", cpus), ("mem-per-gpu", max(gpus, 1))):
        if name not in values:
            continue
        amount = size(_written(name), values[name], _SIZES, "m") * times
        if not amount and name == "mem" and values.get("exclusive") == "":
            continue  # all memory, like all else
        if not amount:
            made.refuse(f"--{name}=0", "name an amount; HAL gives no job all memory of a node", unless="memory")
            continue
        made.put("memory", format_size(amount), f"memory {format_size(amount)}")
        if name != "mem":
            made.env[_variable(name)] = str(amount // times >> 20)


def _devices(made: Translation, values: Values, tasks: int, nodes: int) -> int:
    """GPUs by --gres, --gpus and the like, and other generic resources, of each node."""
    gpus, kind = 0, ""
    for part in filter(None, values.get("gres", "").split(",")):
        name, _, what = part.partition(":")
        model, colon, number = what.rpartition(":")
        model, number = (model, number) if colon or what.isdigit() else (what, "")
        number = number.partition("(")[0] or "1"
        if name == "none" or number == "0":
            continue
        amount = count("--gres", number)
        if name == "gpu":
            gpus, kind = gpus + amount, model or kind
        else:
            made.add("request", [f"{name}={amount}"], f"{name} {amount}")
    for option, times in (("gpus", 1), ("gpus-per-node", 1), ("gpus-per-task", tasks)):
        if option in values and values[option] != "0":
            model, _, number = values[option].rpartition(":")
            gpus, kind = count(_written(option), number) * times, model or kind
            if option == "gpus" and gpus % nodes:
                made.refuse(f"--gpus={values[option]}", "give --gpus-per-node: all nodes have as many", unless="gpus")
            gpus = max(gpus // nodes, 1) if option == "gpus" else gpus
            made.env[_variable(option)] = values[option]
    part = slice_type(kind.rpartition("_")[2])
    if gpus:
        made.put("gpus", f"{part}:{gpus}" if part else str(gpus), f"gpus {f'{part}:' if part else ''}{gpus}")
        made.env["SLURM_GPUS_ON_NODE"] = str(gpus)
    kind = kind.rpartition("_")[0] if part else kind
    if kind:
        made.add("constraint", [f"gpu={kind}"], f"constraint gpu={kind} (a label of nodes)")
    return gpus


def _when(made: Translation, values: Values) -> None:
    """Time limit, begin, dependencies, hold, priority, signal."""
    if "time" in values:
        text = values["time"].strip().lower()
        minutes = f"{text}m" if text.isdigit() else text
        limit = "unlimited" if text in _UNLIMITED else duration("--time", minutes)
        made.put("walltime", limit, f"walltime {limit}")
    if "begin" in values:
        text = re.sub(r"^(now\+[0-9]+)$", r"\1s", values["begin"].strip())
        made.put("begin", text, f"begin {text}")
    if "dependency" in values:
        expression = _dependency(made, values["dependency"])
        if expression:
            made.put("after", (expression,), f"after {expression}")
    if "kill-on-invalid-dep" in values:
        rule = "cancel" if values["kill-on-invalid-dep"].strip().lower() == "yes" else "hold"
        made.put("on_dependency_failed", rule, f"on-dependency-failed {rule}")
    if "hold" in values:
        made.put("hold", True, "hold")
    if "nice" in values:
        nice = values["nice"] or "100"
        if not re.fullmatch(r"-?[0-9]{1,10}", nice):
            bad("--nice", nice, "write a whole number")
        made.put("priority", -int(nice), f"priority {-int(nice)}")
    if "signal" in values:
        _signal(made, values["signal"])
    for name, rule in (("requeue", "requeue"), ("no-requeue", "wait")):
        if name in values:
            made.put("on_node_lost", rule, f"on-node-lost {rule}")


def _dependency(made: Translation, text: str) -> str:
    """`afterok:1:2,afterany:3?…` in HAL's grammar; '' if it is refused."""
    if "," in text and "?" in text:
        bad("--dependency", text, "separate conditions by , or by ?, not by both")
    either = "?" in text
    groups: list[str] = []
    for part in text.split("?" if either else ","):
        kind, *jobs = part.strip().split(":")
        if kind.isdigit() and not jobs:
            kind, jobs = "afterany", [kind]  # an old form
        if kind == "singleton":
            groups.append("singleton")
            continue
        if kind not in ("after", "afterany", "afterok", "afternotok", "aftercorr"):
            made.refuse(
                f"--dependency={part}",
                "HAL knows after, afterany, afterok, afternotok, aftercorr, singleton",
                unless="after",
            )
            return ""
        if any("+" in job for job in jobs):
            made.refuse(f"--dependency={part}", "HAL knows no delay after a start; use --begin", unless="after")
            return ""
        if not jobs or any(not re.fullmatch(r"[0-9]{1,18}", job) for job in jobs):
            bad("--dependency", part, "write it like afterok:12:13")
        several = " & ".join(f"{kind}:{job}" for job in jobs)
        groups.append(f"({several})" if len(jobs) > 1 and either else several)
    return (" | " if either else " & ").join(groups)


def _signal(made: Translation, text: str) -> None:
    where, colon, rest = text.rpartition(":")
    if colon and where.upper() not in ("B", ""):
        made.refuse(f"--signal={text}", "HAL signals before the walltime ends: --signal=B:USR1@300", unless="signal")
        return
    name, _, before = rest.partition("@")
    name = name.upper().removeprefix("SIG")
    name = _SIGNALS.get(int(name), name) if name.isdigit() else name
    made.put("signal", f"{name}@{count('--signal', before or '60')}s", f"signal {name} {before or 60}s before the end")


def _placed(made: Translation, values: Values) -> None:
    """Queue, account and where it may run."""
    for name, option in (("partition", "queue"), ("qos", "qos"), ("account", "account"), ("reservation", "booking")):
        if name not in values:
            continue
        if "," in values[name]:
            made.refuse(f"--{name}={values[name]}", f"name one {option}", unless=option)
        else:
            made.put(option, values[name], f"{option} {values[name]}")
    if "constraint" in values:
        text = values["constraint"].strip()
        if re.fullmatch(r"[A-Za-z0-9_./-]+(?:[&,][A-Za-z0-9_./-]+)*", text):
            features = re.split(r"[&,]", text)
            made.add("constraint", features, f"constraint {', '.join(features)} (labels of nodes)")
        else:
            made.refuse(
                f"--constraint={text}", "HAL's form of a choice is #HAL --constraint label=a|b", unless="constraint"
            )
    if "nodelist" in values:
        nodes = host_list("--nodelist", values["nodelist"])
        if len(nodes) == 1:
            made.add("constraint", [f"hal.node={nodes[0]}"], f"constraint hal.node={nodes[0]}")
        else:
            made.refuse(f"--nodelist={values['nodelist']}", "give --nodes, and exclude others", unless="constraint")
    if "exclude" in values:
        nodes = host_list("--exclude", values["exclude"])
        made.put("exclude", tuple(nodes), f"exclude {','.join(nodes)}")
    if "licenses" in values:
        found = [one.replace("=", ":") for one in re.split(r"[,;]", values["licenses"]) if one]
        if any("@" in one for one in found):
            made.refuse(
                f"--licenses={values['licenses']}",
                "licences of a server are declared in HAL's policy",
                unless="licence",
            )
        else:
            made.put("licence", tuple(found), f"licence {','.join(found)}")


def _streams(made: Translation, values: Values) -> None:
    """Files of output, errors and input, with Slurm's patterns."""
    array = "array" in values or "array" in made.given
    for name, option in (("output", "stdout"), ("error", "stderr"), ("input", "stdin")):
        if name not in values:
            continue
        path = _pattern(made, f"--{name}={values[name]}", values[name], option, array=array)
        if path:
            made.put(option, path, f"{option} {path}")
    if "open-mode" in values:
        modes = {"a": "append", "append": "append", "t": "truncate", "truncate": "truncate"}
        mode = modes.get(values["open-mode"].lower())
        if mode is None:
            bad("--open-mode", values["open-mode"], "write append or truncate")
        if not {"output", "error"}.isdisjoint(values):
            made.put("open_mode", mode, f"open-mode {mode}")


def _pattern(made: Translation, written: str, path: str, option: str, *, array: bool) -> str:
    """The path with HAL's patterns; '' if it is refused. `%j` of an array is the number of one task."""
    unknown: list[str] = []

    def replaced(match: re.Match[str]) -> str:
        pad, letter = match.group(1), match.group(2)
        if letter == "%":
            return "%%"
        pad = f"{int(pad):02}" if pad else ""
        if letter in "jJ":
            return f"%{pad}A_%a" if array else f"%{pad}j"
        if letter in "AaxuNnt":
            return f"%{pad}{letter}"
        if letter == "s":
            return "batch"
        unknown.append(letter)
        return ""

    if "\\" in path:
        return path.replace("\\", "").replace("%", "%%")
    found = re.sub(r"%([0-9]{0,2})(.?)", replaced, path)
    if unknown:
        made.refuse(written, f"HAL has no pattern %{unknown[0]}", unless=option)
        return ""
    return found


def _rest(made: Translation, values: Values) -> None:
    """Name, comment, directory, array, environment."""
    if "job-name" in values:
        job_name(made, values["job-name"])
    if "comment" in values:
        made.put("comment", values["comment"][:200], "comment")
    if "chdir" in values:
        made.put("workdir", values["chdir"], f"workdir {values['chdir']}")
    if "array" in values:
        indices, percent, pace = values["array"].partition("%")
        single = indices.isdigit()  # one task of that index; HAL alone reads a count
        array = (f"{indices}-{indices}" if single else indices) + percent + pace
        made.put("array", array, f"array {array}")
    if "export" not in values:
        made.put("export_all", True, "your whole environment, as sbatch passes it")
        return
    env: list[str] = []
    for word in filter(None, re.split(r",(?=[A-Za-z_][A-Za-z0-9_]*(?:=|,|$))", values["export"])):
        if word.upper() == "ALL":
            made.put("export_all", True, "your whole environment")
        elif word.upper() not in ("NONE", "NIL"):
            env.append(word)
    if env:
        made.add("env", env, f"env {', '.join(one.partition('=')[0] for one in env)}")


def _variables(made: Translation, values: Values, workdir: str, host: str) -> None:
    made.env |= {"SLURM_SUBMIT_DIR": workdir, "SLURM_SUBMIT_HOST": host}
    if "export" in values:
        made.env["SLURM_EXPORT_ENV"] = values["export"]
        if values["export"].upper() != "ALL":
            made.env["SLURM_GET_USER_ENV"] = "1"


def _variable(option: str) -> str:
    """The variable in which Slurm gives an option to the job."""
    return f"SLURM_{option.upper().replace('-', '_')}"
