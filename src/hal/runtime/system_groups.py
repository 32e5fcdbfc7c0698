"""The groups of a user as this machine's name service knows them: files, LDAP, SSSD. Blocking, possibly for long."""

from __future__ import annotations

import grp
import os
import pwd
from typing import Final

MAX_GROUPS: Final = 2_000
"""Groups of one user that are looked at."""


def groups_of(user: str) -> frozenset[str]:
    """Names of the user's groups; none for a user whom the machine does not know. Groups without a name are left out.

    Raises:
        OSError: the name service does not answer.
    """
    try:
        account = pwd.getpwnam(user)
    except KeyError:
        return frozenset()
    names = set()
    for gid in os.getgrouplist(account.pw_name, account.pw_gid)[:MAX_GROUPS]:
        try:
            names.add(grp.getgrgid(gid).gr_name)
        except KeyError:
            continue
    return frozenset(names)
