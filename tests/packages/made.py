# SPDX-License-Identifier: BSD-2-Clause
"""The packages under test (packages.build has made them), and how the tests run programs."""

import os
import pathlib
import subprocess

FOLDER = pathlib.Path(os.environ["VERBENA_PACKAGES"])
SOURCE = pathlib.Path(os.environ["VERBENA_SOURCE"])
BUILD = pathlib.Path(os.environ["VERBENA_BUILD"])
VERSION = os.environ["VERBENA_VERSION"]
EPOCH = "1700000000"  # as tests/packages/CMakeLists.txt has it
DEBS = ("verbena", "verbena-dev", "verbs-conformance")
PATIENCE = 200  # seconds that one program may take


def run(*command, check=True, patience=PATIENCE, **more):
    """The completed process; its output is text. A failure shows what it printed."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=patience, **more)
    if check and done.returncode != 0:
        raise AssertionError(f"{command} ended with status {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def only(pattern, folder=FOLDER):
    found = sorted(folder.glob(pattern))
    assert len(found) == 1, f"{pattern}: {found}"
    return found[0]


def deb(name, folder=FOLDER):
    return only(f"{name}_{VERSION}_*.deb", folder)


def tarball(folder=FOLDER):
    return only(f"verbena-{VERSION}-linux-*.tar.xz", folder)


def outside(**more):
    """An environment without a node or a Python path of the caller's."""
    clean = {name: value for name, value in os.environ.items()
             if not name.startswith(("VERBENA_", "RDMAV_", "PYTHON")) and name != "LD_PRELOAD"}
    return {**clean, **more}
