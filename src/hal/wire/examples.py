"""One example of each frame, for the wire's description and for tests of clients in other languages.

Pure values.
"""

from __future__ import annotations

from hal.core.lifecycle.gates import GateState
from hal.core.model.facts import CpuFacts, DiskFacts, Facts, GpuFacts, NumaFacts
from hal.core.model.gate import GatePhase, GatePolicy
from hal.core.model.ids import StepId
from hal.wire.frames.agent_keeper import (
    Checkpoint,
    Done,
    ExitCause,
    Exits,
    ExitsAck,
    FindStep,
    Forget,
    ForgetPiece,
    Forgotten,
    Heartbeat,
    HeartbeatAck,
    LogChunk,
    OutputPart,
    OutputParts,
    Prepare,
    ReadLog,
    ReadOutputs,
    Recall,
    Refusal,
    Refused,
    Resize,
    Resume,
    Sample,
    Samples,
    Signal,
    Start,
    Started,
    StepExit,
    StepFound,
    StepStart,
    StepStarted,
    StepTemplate,
    Stop,
    StopReason,
    Stream,
    Suspend,
    TemplateGate,
    Usage,
)
from hal.wire.frames.controller_agent import (
    FailingCheck,
    Gates,
    Health,
    JobNodes,
    JobSecrets,
    OpenStream,
    Readiness,
    Secrets,
    StepGate,
    StepReadiness,
    StreamKind,
    StreamOpened,
)
from hal.wire.frames.conversation import Frame
from hal.wire.frames.files import (
    BundleManifest,
    BundleSegment,
    CollectBounds,
    CollectedEnd,
    CollectedPiece,
    CollectedStored,
    OpenFiles,
    ReadBundle,
    ReadSegments,
    StoreCollected,
)
from hal.wire.frames.hello import Goodbye, HeldStep, Hello, Welcome
from hal.wire.frames.joining import (
    Authority,
    CertificatesRefused,
    CheckCertificates,
    Join,
    Joined,
    ReadAuthority,
    Renew,
)
from hal.wire.roles import Role

_STEP = StepId(42, 7, 1, 0)
_TOKEN = "8f14e45fceea167a5a36dedd4bea2543"
_PEM = "-----BEGIN {0}-----\nMIIB…\n-----END {0}-----\n"
_CAPACITY = {"cpu": 2_000, "memory": 4 << 30}

EXAMPLES: tuple[Frame, ...] = (
    Hello(
        role=Role.AGENT,
        versions=(1, 1),
        name="n1",
        boot_id="0e3f1344-4abd-4d47-a557-ffd2cb9b6623",
        pid=4711,
        epoch=3,
        capacity=_CAPACITY,
        labels={"rack": "r7", "hal.node": "n1"},
        facts=Facts(
            system="Debian GNU/Linux 12 (bookworm)",
            system_id="debian",
            kernel="6.1.0",
            architecture="x86_64",
            host="n1",
            cpu=CpuFacts(model="AMD EPYC 9654", sockets=2, cores=192, threads=384),
            memory_bytes=768 << 30,
            numa=(NumaFacts(id=0, cpus="0-95,192-287", memory_bytes=384 << 30),),
            disks=(DiskFacts(path="/", device="/dev/sda1", file_system="ext4", kind="ssd", size_bytes=1 << 39),),
            gpus=(GpuFacts(index=0, model="NVIDIA H200", memory_bytes=141 << 30, uuid="GPU-7", numa=0),),
            domain="dc1/rack3",
        ),
        notes=("cpu limits: cgroup not writable",),
        held=(
            HeldStep(step=_STEP, running=True, pid=4800, started_ms=1_767_225_600_000, allocated_ms=1_767_225_599_990),
        ),
    ),
    Welcome(role=Role.CONTROLLER, version=1, epoch=4, heartbeat_ms=2_000, lease_ms=60_000),
    Goodbye(code="version", reason="no wire version in common: this side supports 1, the other side 2 to 3"),
    ReadAuthority(),
    Authority(certificate=_PEM.format("CERTIFICATE")),
    Join(
        versions=(1, 1),
        name="n1",
        token="5f3a09c1.0e3f13444abd4d47a557ffd2cb9b6623",
        request=_PEM.format("CERTIFICATE REQUEST"),
    ),
    Joined(
        name="n1",
        certificate=_PEM.format("CERTIFICATE"),
        authority=_PEM.format("CERTIFICATE"),
        expires_ms=1_775_001_600_000,
    ),
    Renew(request=_PEM.format("CERTIFICATE REQUEST")),
    CheckCertificates(serials=("5a1f", "77c0")),
    CertificatesRefused(serials=("77c0",)),
    Heartbeat(stamp_boot_ms=3_601_500, epoch=4, running=2, load=0.5),
    HeartbeatAck(stamp_boot_ms=3_601_500, epoch=4, now_ms=1_767_225_600_000),
    Health(failing=(FailingCheck("disk", "10MiB free at /home/hal; 16MiB are wanted", 1_767_225_600_000),)),
    Start(
        epoch=4,
        stamp_boot_ms=3_601_500,
        templates=(
            StepTemplate(
                command=("/bin/echo", "hello"),
                cpu_milli=1_000,
                walltime_ms=60_000,
                gates=(TemplateGate("stage", GatePhase.PREPARING, 300_000, GatePolicy.WAIT, "genome"),),
            ),
        ),
        steps=(
            StepStart(
                step=_STEP,
                template=0,
                token=_TOKEN,
                nodes=("n1",),
                array_index=7,
                array_count=10,
                started_at_ms=1_767_225_600_000,
            ),
            StepStart(
                step=StepId(42, 8, 1, 0),
                template=0,
                token=_TOKEN,
                nodes=("n1",),
                array_index=8,
                array_count=10,
                started_at_ms=1_767_225_600_000,
                credit_ms=250,
            ),
        ),
    ),
    Signal(epoch=4, steps=(_STEP,), name="USR1"),
    Stop(epoch=4, steps=(_STEP,), reason=StopReason.CANCELLED, grace_ms=10_000),
    Recall(epoch=4, steps=(StepId(42, 8, 1, 0),)),
    Suspend(epoch=4, steps=(_STEP,)),
    Resume(epoch=4, steps=(_STEP,)),
    Resize(epoch=4, steps=(_STEP,), cpu_milli=500, walltime_ms=120_000),
    Checkpoint(epoch=4, steps=(_STEP,), name="USR2", grace_ms=60_000, last_grace_ms=5_000),
    Prepare(epoch=4, steps=(_STEP,)),
    Done(command="signal", steps=(_STEP,), failed=((StepId(42, 8, 1, 0), "not running"),)),
    Started(steps=(StepStarted(step=_STEP, pid=4800, at_ms=1_767_225_600_012),)),
    Refused(steps=(Refusal(step=_STEP, code="no-lease", message="the lease stamp is 61000 ms old"),)),
    JobNodes(epoch=4, step=_STEP, nodes=("w1", "w2", "w7"), slots=2, signal="WINCH"),
    Secrets(values=(b"correct horse battery staple",), jobs=(JobSecrets(42, (("db-password", 0),)),)),
    Gates(
        gates=(
            StepGate(step=_STEP, gate="prolog", state=GateState.WAITING, phase=GatePhase.PREPARING),
            StepGate(
                step=StepId(42, 9, 1, 0),
                gate="stage",
                state=GateState.WAITING,
                reason="12 of 40 GiB",
                phase=GatePhase.PREPARING,
            ),
            StepGate(
                step=StepId(42, 8, 1, 0),
                gate="epilog",
                state=GateState.FAILED,
                reason="/etc/hal/epilog: scratch is in use (exit code 3)",
                phase=GatePhase.FINALISING,
            ),
        )
    ),
    Readiness(
        steps=(
            StepReadiness(_STEP, ready=True, since_ms=1_767_225_601_000, ports=(21_034,)),
            StepReadiness(
                StepId(42, 8, 1, 0),
                ready=False,
                since_ms=1_767_225_602_000,
                reason="GET /healthz: status 503",
                ports=(21_035,),
            ),
        )
    ),
    Exits(
        exits=(
            StepExit(
                step=_STEP,
                cause=ExitCause.SIGNALLED,
                code=137,
                signal=9,
                started_ms=1_767_225_600_012,
                ended_ms=1_767_225_601_500,
                usage=Usage(user_ms=1_200, system_ms=80, max_rss_bytes=52_428_800),
                message="",
                next=StepId(42, 8, 1, 0),
            ),
        )
    ),
    ExitsAck(steps=(_STEP,)),
    Samples(samples=(Sample(step=_STEP, rss_bytes=52_428_800, cpu_ms=1_280, cpus="2-3"),)),
    ReadLog(request=9, step=_STEP, stream=Stream.STDOUT, offset=-100, limit=262_144),
    LogChunk(request=9, step=_STEP, stream=Stream.STDOUT, offset=0, data=b"hello\n", size=6, ended=True),
    ReadOutputs(request=9, steps=(_STEP, StepId(42, 8, 1, 0)), stream=Stream.STDOUT, offset=0, limit=16_384),
    OutputParts(request=9, parts=(OutputPart(0, b"hello\n", 6), OutputPart(0, b"", 0))),
    Forget(request=9, pieces=(ForgetPiece(42, 1, 0, 1_000), ForgetPiece(41))),
    Forgotten(request=9),
    FindStep(request=9, step=_STEP),
    StepFound(
        request=9,
        pid=4_711,
        started_boot_ms=81_234_567,
        mark=4_611_604_783_979_000_000,
        user="ann",
        least_uid=1_000,
        cgroups=("/sys/fs/cgroup/hal/s1/cgroup.procs",),
        cpus=(2, 3),
    ),
    OpenStream(
        request=9,
        step=_STEP,
        kind=StreamKind.EXEC,
        ticket=_TOKEN,
        argv=("sh", "-c", "ps"),
        terminal=True,
        term="xterm-256color",
        rows=24,
        columns=80,
        by="ann",
    ),
    StreamOpened(request=9, path="/tmp/hal-1a2b3c4d/stream-5e6f7a8b.sock"),
    OpenFiles(versions=(1, 1), node="n1"),
    ReadBundle(step=_STEP),
    BundleManifest(data=b'{"version":1,"entries":[["fit.py","x",6]],"segments":[["%s",6]]}' % (b"5e" * 32)),
    ReadSegments(digests=("5e" * 32,)),
    BundleSegment(data=b"hello\n"),
    StoreCollected(step=_STEP),
    CollectBounds(size_bytes=1 << 30, files=10_000),
    CollectedPiece(data=b"hello\n"),
    CollectedEnd(files=1),
    CollectedStored(),
)
"""In the order in which the frames are declared."""
