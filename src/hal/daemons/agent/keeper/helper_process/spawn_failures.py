"""Why a step could not be spawned: the fault of its job, which then failed, or of this node, so that it may run
elsewhere."""

from __future__ import annotations

import errno

from hal.runtime.regular_files import NotRegularError


class CannotSpawnError(Exception):
    """A fault of the job: exit code and message."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class CannotSpawnHereError(Exception):
    """This node's fault: it lacks a resource, or its disks fail. Another attempt may succeed."""


NODE_ERRORS = frozenset(
    {
        errno.EBADF,  # descriptors forbidden by its limit
        errno.EAGAIN,  # as many processes as this user, its cgroup or the kernel allows
        errno.ENOMEM,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EROFS,
        errno.EIO,
        errno.ENODEV,
        errno.ENXIO,
        errno.ENOBUFS,
        errno.ESTALE,
        errno.ENOTCONN,  # a mount whose server does not answer; and the four after it
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ETIMEDOUT,
        errno.ECONNABORTED,
        errno.EREMOTEIO,
    }
)
"""Errors of a spawn, a work directory or a script that are the fault of the node, not of the job."""


def describe_obstacle(error: NotRegularError) -> str:
    """Describe what is in the place of a file of the step, and what to do."""
    return f"{error.filename}: {error.strerror}; remove it and submit the job again"
