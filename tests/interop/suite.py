# SPDX-License-Identifier: BSD-2-Clause
"""The pyverbs test suite as the distribution ships it: in the documentation folder of its package python3-pyverbs.

Slim images leave documentation out (dpkg's path-exclude); then the package is downloaded and unpacked.
"""

import fcntl
import glob
import gzip
import os
import re
import shutil
import subprocess

from harness.failure import Skip

PACKAGE = "python3-pyverbs"
SHIPPED = "usr/share/doc/rdma-core/tests"


def unpack(into, build):
    """Unpacks the suite to the folder `into`, which must not exist. Downloads are kept below `build`."""
    shipped = f"/{SHIPPED}"
    if not os.path.isfile(os.path.join(shipped, "args_parser.py")):
        shipped = downloaded(os.path.join(build, "interop"))
    os.mkdir(into)
    for path in glob.glob(os.path.join(shipped, "*")):
        name = os.path.basename(path)
        opened = gzip.open(path) if name.endswith(".gz") else open(path, "rb")
        with opened as source, open(os.path.join(into, name.removesuffix(".gz")), "wb") as target:
            shutil.copyfileobj(source, target)


def version():
    """Version of rdma-core, such as 44. 0: the package is not installed."""
    asked = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", PACKAGE], capture_output=True, text=True)
    found = re.match(r"(?:\d+:)?(\d+)", asked.stdout)
    return int(found[1]) if found else 0


def downloaded(folder):
    """The suite's folder inside the package that is installed."""
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several tests may do this at once
        whole = said(["dpkg-query", "-W", "-f", "${Version}", PACKAGE], folder)
        package = os.path.join(folder, f"{PACKAGE} {whole}".replace(":", "%3a"))
        if not os.path.isdir(package):
            for old in glob.glob(os.path.join(folder, f"{PACKAGE}_*.deb")):
                os.unlink(old)
            said(["apt-get", "-q", "download", f"{PACKAGE}={whole}"], folder)
            (archive,) = glob.glob(os.path.join(folder, f"{PACKAGE}_*.deb"))
            said(["dpkg-deb", "-x", archive, package + ".new"], folder)
            os.rename(package + ".new", package)
    return os.path.join(package, SHIPPED)


def said(command, folder):
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise Skip(f"{command[0]}: {problem}") from None
    if done.returncode != 0:
        raise Skip(f"`{' '.join(command)}` failed: {done.stderr.strip()}")
    return done.stdout.strip()


def modules(suite):
    return sorted(name.removesuffix(".py") for name in os.listdir(suite)
                  if name.startswith("test_") and name.endswith(".py"))
