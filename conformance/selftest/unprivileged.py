#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The quick tests as a user without rights. Afterwards nothing is left: no process, no file, no object.

    conformance/selftest/unprivileged.py VERBENA SUITE [OPTION...]

As root it becomes another user first (the user of `nobody`); any other user has no rights anyway. Exit status 77 where
that user cannot reach the programs.
"""
import json
import os
import pathlib
import pwd
import stat
import subprocess
import sys
import tempfile
import uuid

NODE = "conformance-unprivileged"
TIME = 150
SKIPPED = 77


def another_user():
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []} if os.geteuid() == 0 else {}


def left_running(mark):
    """Processes with the mark in their environment, also those in a session of their own."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                found.append(f"{folder.name} {(folder / 'cmdline').read_bytes().replace(bytes(1), b' ').decode()}")
        except OSError:  # ended meanwhile, or another user's
            pass
    return found


def files_of(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def main():
    verbena, suite, *options = sys.argv[1:]
    user = another_user()
    if subprocess.run(["test", "-x", verbena, "-a", "-x", suite], **user).returncode != 0:
        print(f"{verbena} or {suite} cannot be reached without rights")
        return SKIPPED
    mark = "CONFORMANCE_MARK_" + uuid.uuid4().hex
    # Below /tmp: a path that the user can reach, whichever user made it, and short enough for the node's sockets.
    with tempfile.TemporaryDirectory(prefix="conformance.", dir="/tmp") as folder:
        folder = pathlib.Path(folder)
        for name in ("home", "tmp", "run", "report"):
            (folder / name).mkdir()
            if user:
                os.chown(folder / name, user["user"], user["group"])
        folder.chmod(0o755)
        (folder / "run").chmod(0o700)
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("VERBENA", "XDG"))}
        environment.update(HOME=str(folder / "home"), TMPDIR=str(folder / "tmp"), XDG_RUNTIME_DIR=str(folder / "run"),
                           **{mark: "1"})
        common = {"env": environment, "cwd": folder / "home", "timeout": TIME, "stdin": subprocess.DEVNULL, **user}
        run = subprocess.run([verbena, "run", "--node", NODE, "--", suite, "--quick", "--report-dir", folder / "report",
                              *options], **common)
        # librdmacm keeps its devices open to the end of the process. A kernel cleans up after it at once; a node does
        # when the next process joins it.
        subprocess.run([verbena, "run", "--node", NODE, "--", suite, "--filter", "device.OpensMoreThanOnce"],
                       stdout=subprocess.DEVNULL, check=True, **common)
        status = json.loads(subprocess.run([verbena, "status", "--node", NODE, "--json"], stdout=subprocess.PIPE,
                                           **common).stdout)
        faults = [] if run.returncode == 0 else [f"the suite ended with {run.returncode}"]
        faults += [f"still runs: {process}" for process in left_running(mark)]
        faults += [f"left in {name}: {path}" for name in ("home", "tmp") for path in sorted(files_of(folder / name))]
        faults += [f"report: {path}" for path in
                   sorted(files_of(folder / "report") ^ {"report.json", "report.xml", "report.html"})]
        for node in status["nodes"]:
            faults += [f"the node has {process}" for process in node["processes"]]
            slots = pathlib.Path(node["path"], "slots")
            faults += [f"left in the node: {path.name}" for path in slots.iterdir()]
            faults += [f"left in the node: {path}" for path in pathlib.Path(node["path"]).rglob("*")
                       if stat.S_ISSOCK(path.lstat().st_mode) or stat.S_ISFIFO(path.lstat().st_mode)]
        if len(status["nodes"]) != 1:
            faults.append(f"{len(status['nodes'])} nodes instead of one")
    print("\n".join(faults) or "nothing is left behind")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
