# SPDX-License-Identifier: BSD-2-Clause
"""Where the kernel gives no access to another process's memory (tests/programs/refuse.cc)."""

import os
import subprocess

from harness.failure import Skip


def refusing(settings, what):
    """The command that starts another one there. `what`: EPERM or ENOSYS, and optionally "+memory-file"."""
    command = [os.path.join(settings.build, "bin", "programs_refuse"), what]
    tried = subprocess.run([*command, "true"], capture_output=True, text=True, timeout=settings.patience)
    if tried.returncode == 77:
        raise Skip(f"no filters of system calls here: {tried.stderr.strip()}")
    return command
