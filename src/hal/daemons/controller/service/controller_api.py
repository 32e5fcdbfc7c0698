"""Everything that can be asked of a controller, in process, by what it is about: REST and simulations call it."""

from __future__ import annotations

from hal.daemons.controller.access.delegation import Delegations
from hal.daemons.controller.metrics.slow_facts import SlowFacts
from hal.daemons.controller.service.access.audit_heads import AuditHeads
from hal.daemons.controller.service.access.join_tokens import JoinTokens
from hal.daemons.controller.service.access.logins import Logins
from hal.daemons.controller.service.access.secrets import Secrets
from hal.daemons.controller.service.access.tokens import Tokens
from hal.daemons.controller.service.advice.advice import Advice
from hal.daemons.controller.service.announced_planes import AnnouncedPlanes
from hal.daemons.controller.service.ask import Ask
from hal.daemons.controller.service.attempts import Attempts
from hal.daemons.controller.service.feed import Feed
from hal.daemons.controller.service.files import Files
from hal.daemons.controller.service.jobs.jobs import Jobs
from hal.daemons.controller.service.nodes.node_use import NodeUse
from hal.daemons.controller.service.nodes.nodes import Nodes
from hal.daemons.controller.service.nodes.offers import Offers
from hal.daemons.controller.service.nodes.topology import TopologyUse
from hal.daemons.controller.service.notices.notices import Notices
from hal.daemons.controller.service.outputs import Outputs
from hal.daemons.controller.service.parts import Parts
from hal.daemons.controller.service.periodic.periodic import PeriodicJobs
from hal.daemons.controller.service.policy.delegated import Delegated
from hal.daemons.controller.service.policy.policies import Policies
from hal.daemons.controller.service.readers import Readers
from hal.daemons.controller.service.services import Services
from hal.daemons.controller.service.status import Status
from hal.daemons.controller.service.streams import Streams
from hal.daemons.controller.service.task_outputs import TaskOutputs


class ControllerApi:
    """Of one controller."""

    def __init__(self, parts: Parts, slow_facts: SlowFacts) -> None:
        self.runtime = parts.runtime
        self.metrics = parts.metrics
        self.slow_facts = slow_facts
        self.access = parts.access
        self.secrets = Secrets(parts)
        self.files = Files(parts)
        self.jobs = Jobs(parts, self.secrets, self.files)
        self.periodic = PeriodicJobs(parts, self.jobs, self.secrets)
        self.notices = Notices(parts)
        self.nodes = Nodes(parts)
        self.topology = TopologyUse(parts)
        self.node_use = NodeUse(parts)
        self.offers = Offers(parts)
        self.policy = Policies(parts)
        self.delegations = Delegations(lambda: parts.plane.policy)
        self.delegated = Delegated(parts, self.policy)
        self.advice = Advice(parts)
        self.planes = AnnouncedPlanes(parts)
        self.tokens = Tokens(parts)
        self.logins = Logins(parts, self.tokens)
        self.join_tokens = JoinTokens(parts)
        self.audit_heads = AuditHeads(parts)
        self.outputs = Outputs(parts)
        self.streams = Streams(parts)
        self.services = Services(parts)
        self.task_outputs = TaskOutputs(parts, self.outputs)
        self.feed = Feed(parts.committer, parts.watchers)
        self.attempts = Attempts(parts)
        self.ask = Ask(parts)
        self.readers = Readers(parts)
        self.status = Status(parts, self.notices)
