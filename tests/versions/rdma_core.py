# SPDX-License-Identifier: BSD-2-Clause
"""A source tree of rdma-core, and its libraries and programs, built in the folder `build` of the tree."""

import glob
import os
import re
import subprocess

from harness.failure import Failure

LIBRARIES = ("ibverbs", "rdmacm")
PROGRAM = re.compile(r"bin/(ibv_(devinfo|devices|asyncwatch|\w+_pingpong)|"
                     r"rping|ucmatose|udaddy|cmtime|rdma_\w*(server|client))")
PYVERBS = re.compile(r"python/pyverbs/(\w+/)*\w+\.cpython[\w.-]*\.so")  # the suite imports the vendors' as well
PYTHON = "/usr/bin/python3"


class RdmaCore:
    def __init__(self, source):
        self.source = source
        self.folder = os.path.join(source, "build")
        text = open(os.path.join(source, "CMakeLists.txt")).read()
        self.version = re.search(r'^set\(PACKAGE_VERSION "([\d.]+)"', text, re.M)[1]
        self.abi = re.search(r'^set\(IBVERBS_PABI_VERSION "(\d+)"', text, re.M)[1]
        self.release = int(self.version.split(".")[0])

    def build(self, log, pyverbs):
        """Builds what is missing. True: pyverbs is there, too."""
        if not os.path.exists(os.path.join(self.folder, "build.ninja")):
            os.makedirs(self.folder, exist_ok=True)
            self._said(log, "cmake", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DIN_PLACE=1", "-DNO_MAN_PAGES=1",
                       "-DCMAKE_POLICY_VERSION_MINIMUM=3.5", f"-DPYTHON_EXECUTABLE={PYTHON}",
                       f"-DPython_EXECUTABLE={PYTHON}", "..")
        # libibverbs would report each provider that is not built.
        for driver in glob.glob(os.path.join(self.folder, "etc", "libibverbs.d", "*.driver")):
            os.unlink(driver)
        targets = re.findall(r"^(\S+):", self._said(log, "ninja", "-t", "targets", "all"), re.M)
        self._said(log, "ninja", *LIBRARIES, *filter(PROGRAM.fullmatch, targets))
        extensions = list(filter(PYVERBS.fullmatch, targets))
        if not pyverbs or not extensions:
            return False
        try:
            self._said(log, "ninja", *extensions)
        except Failure:  # this Cython does not translate this pyverbs
            return False
        return True

    def environment(self):
        """Variables with which programs find this rdma-core."""
        def first(name, folder):
            rest = os.environ.get(name)
            return {name: os.path.join(self.folder, folder) + (f":{rest}" if rest else "")}
        return {**first("PATH", "bin"), **first("LD_LIBRARY_PATH", "lib"), **first("PYTHONPATH", "python")}

    def _said(self, log, *command):
        done = subprocess.run(command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        log.write(f"$ {' '.join(command)}\n{done.stdout}")
        if done.returncode != 0:
            raise Failure(f"{self.source}: `{command[0]}` ended with status {done.returncode}: {log.name} has its output")
        return done.stdout


def found_in(folder):
    """The source trees in `folder`, by version; or the one that `folder` is."""
    folder = os.path.abspath(folder)
    found = glob.glob(os.path.join(folder, "libibverbs")) or glob.glob(os.path.join(folder, "*", "libibverbs"))
    trees = [RdmaCore(os.path.dirname(path)) for path in found]
    return sorted(trees, key=lambda tree: [int(part) for part in tree.version.split(".")])
