"""What a daemon takes from its starter: a list of names, and what its starter asks to be kept."""

from __future__ import annotations

import subprocess
import sys

from hal.daemons.agent.keeper import helper
from hal.runtime import inheritance
from hal.runtime.inheritance import daemon_environment, script_environment

SHELL = {
    "PATH": "/bin",
    "LC_ALL": "C",
    "PYTHONPATH": "/x",
    "HAL_HOME": "/h",
    "HAL_TOKEN": "secret",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "PGPASSWORD": "secret",
    "SITE_DATA": "/d",
    "SITE_NAME": "here",
    "LD_PRELOAD": "/l",
}


def test_a_daemon_sees_no_variable_that_is_not_on_the_list() -> None:
    """(L2) Tokens and passwords of the shell stay there; the database's go to the controller alone."""
    assert daemon_environment(SHELL) == {"PATH": "/bin", "LC_ALL": "C", "PYTHONPATH": "/x", "HAL_HOME": "/h"}
    assert daemon_environment(SHELL, database=True).keys() - daemon_environment(SHELL).keys() == {"PGPASSWORD"}


def test_the_starter_names_what_else_is_kept() -> None:
    """(L2) For a plugin of the site, say: by name, or by how names begin."""
    kept = daemon_environment(SHELL | {"HAL_KEEP_ENV": "LD_PRELOAD, SITE_*"})
    assert kept.keys() >= {"LD_PRELOAD", "SITE_DATA", "SITE_NAME", "HAL_KEEP_ENV"}
    assert "HAL_TOKEN" not in kept


def test_a_script_sees_less_than_its_daemon() -> None:
    """(L2) Prologs, epilogs and health checks."""
    assert script_environment(SHELL) == {"PATH": "/bin", "LC_ALL": "C"}


def test_a_settled_process_is_private() -> None:
    """(L2, L3, L8) Few variables, files for its user alone, no core file; the size that was allowed is remembered."""
    code = """
import os, resource
resource.setrlimit(resource.RLIMIT_CORE, (4096, resource.getrlimit(resource.RLIMIT_CORE)[1]))
from hal.runtime.inheritance import confine_daemon
confine_daemon()
import ctypes
print(oct(os.umask(0)), resource.getrlimit(resource.RLIMIT_CORE)[0], os.environ["HAL_CORE_LIMIT"],
      "HAL_TOKEN" in os.environ, ctypes.CDLL(None).prctl(3))
"""
    env = {"HAL_TOKEN": "secret", "PATH": "/bin", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, umask=0, check=False)
    assert done.stdout.split() == ["0o77", "0", "4096", "False", "0"], done.stderr


def test_the_helper_agrees() -> None:
    """It imports nothing of HAL."""
    assert (helper.STEP_UMASK, helper.CORE_VARIABLE) == (inheritance.STEP_UMASK, inheritance.CORE_VARIABLE)
