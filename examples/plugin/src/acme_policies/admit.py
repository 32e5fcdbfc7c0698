"""Projects: GPU jobs name a project (an account) and say how long they run; others count for project `commons`."""

from msgspec.structs import replace

from hal.core.interfaces import PolicyInfo, refusal
from hal.core.model import JobSpec, Verdict


class Projects:
    info = PolicyInfo(name="projects", interface="admit/1")

    def check(self, spec: JobSpec) -> JobSpec | Verdict:
        if "gpu" not in spec.request:
            return spec if spec.account else replace(spec, account="commons")
        if not spec.account or spec.account == "commons":
            return refusal("a GPU job belongs to a project", "--account PROJECT")
        if spec.walltime is None:
            return refusal("a GPU job says how long it runs", "--walltime 2h")
        return spec
