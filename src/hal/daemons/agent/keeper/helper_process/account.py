"""The account of a helper that serves one user: looked up while this process is root, and taken on for good.

The look-up asks the node's name services (files, SSSD, LDAP), which may take long: only this process waits for them.
"""

from __future__ import annotations

import ctypes
import errno
import os
import pwd

ROOT_UID = 0
MAX_GROUPS = 65_536
"""The kernel's own limit of supplementary groups."""
PR_SET_DUMPABLE = 4
PR_SET_NO_NEW_PRIVS = 38
KEYCTL = {"x86_64": 250, "aarch64": 219, "riscv64": 219, "loongarch64": 219, "ppc64le": 271, "s390x": 280}
"""The number of keyctl(2), by `uname -m`."""
JOIN_SESSION_KEYRING, LINK = 1, 8
SESSION_KEYRING, USER_KEYRING = -3, -4


class NoAccountError(Exception):
    """This node runs nothing for that user; the message says why."""


class Account:
    """One user of this node, as its name services describe them."""

    def __init__(self, name: str, least_uid: int) -> None:
        """Look it up.

        Args:
            least_uid: smallest user id that is served, but for root itself.
        Raises:
            NoAccountError: the node does not know the user, or does not serve them.
        """
        try:
            entry = pwd.getpwnam(name)
        except (KeyError, ValueError):
            raise NoAccountError(f"this node has no account of user '{name}'") from None
        self.uid: int = entry.pw_uid
        self.gid: int = entry.pw_gid
        if self.uid < max(least_uid, ROOT_UID + 1):
            least = f"the least that is served is {max(least_uid, ROOT_UID + 1)}"
            raise NoAccountError(f"user '{name}' has user id {self.uid} on this node; {least} (min_uid in hal.toml)")
        self.groups: list[int] = os.getgrouplist(name, self.gid)[:MAX_GROUPS]
        self.variables = {
            "HOME": entry.pw_dir or "/",
            "USER": name,
            "LOGNAME": name,
            "SHELL": entry.pw_shell or "/bin/sh",
        }
        """Variables of its steps that their jobs do not set."""

    def take_on(self, *, no_new_privileges: bool) -> None:
        """Become that user for good: this process cannot return, nor can what it spawns, except by what the node
        itself offers (sudo).

        Args:
            no_new_privileges: not even by that.
        Raises:
            OSError: the kernel refused, and nothing may be spawned.
        """
        os.setgroups(self.groups)
        os.setresgid(self.gid, self.gid, self.gid)
        os.setresuid(self.uid, self.uid, self.uid)
        if os.getresuid() != (self.uid,) * 3 or os.getresgid() != (self.gid,) * 3:
            raise OSError(1, "this process did not become its user")
        libc = ctypes.CDLL(None, use_errno=True)
        _leave_keyring(libc)
        # A change of credentials resets it: without it, the user's other processes could trace this one.
        if libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_DUMPABLE)")
        if no_new_privileges and libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_NO_NEW_PRIVS)")


def _leave_keyring(libc: ctypes.CDLL) -> None:
    """Begin a session keyring of this user's: that of whoever started HAL would be possessed by every step, with its
    keys, and with those that steps of other users add.

    Raises:
        OSError: the kernel has keyrings, and refused.
    """
    number = KEYCTL.get(os.uname().machine)
    if number is None:
        raise OSError(errno.ENOSYS, f"how to leave a session keyring on {os.uname().machine} is not known")
    if libc.syscall(number, JOIN_SESSION_KEYRING, None) < 0:
        reason = ctypes.get_errno()
        if reason in (errno.ENOSYS, errno.EPERM):  # a kernel without keys, a container that has none: nobody uses any
            return
        raise OSError(reason, f"no session keyring: {os.strerror(reason)}")
    libc.syscall(number, LINK, USER_KEYRING, SESSION_KEYRING)  # as at a login; without it the user's keys are not found
