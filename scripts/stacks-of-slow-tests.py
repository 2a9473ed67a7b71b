#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Writes where the threads of a test are that has run for long: a test that hangs now and then hangs in CI, where
nobody can look. It ends with the process that started it.

  scripts/stacks-of-slow-tests.py BUILD-FOLDER FILE

A test is a GoogleTest program of the build folder that ctest has started for one test. scripts/failed-tests.py shows
those of the tests that failed. LeakSanitizer stops a program's threads from a process of its own, so children are
looked at as well.
"""

import os
import pathlib
import subprocess
import sys
import time

AGE = 50  # seconds: the tests of a unit end after 60
PAUSE = 2
GDB = 40


def read(file):
    try:
        return file.read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def parent_of(process):
    return int((read(process / "stat").rpartition(")")[2].split() or [0, 0])[1])


def describe(process):
    yield f"-- process {process.name}: {read(process / 'cmdline')}"
    for task in sorted((process / "task").glob("*")):
        state = read(task / "stat").rpartition(")")[2][:3].strip()
        yield f"thread {task.name}: state {state}, wchan {read(task / 'wchan')}, syscall {read(task / 'syscall')}"
    try:
        seen = subprocess.run(["gdb", "-p", process.name, "-batch", "-nx", "-ex", "set print frame-arguments none",
                               "-ex", "thread apply all bt 24"], capture_output=True, text=True, timeout=GDB)
        yield from (line[:200] for line in seen.stdout.splitlines() if line.startswith(("#", "Thread")))
    except (OSError, subprocess.TimeoutExpired) as error:
        yield f"gdb: {error}"


def main():
    build, file = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    file.unlink(missing_ok=True)
    starter, first_seen, described = os.getppid(), {}, set()
    while os.getppid() == starter:
        now = time.monotonic()
        processes = {int(path.name): path for path in pathlib.Path("/proc").glob("[0-9]*")}
        tests = {pid for pid, path in processes.items()
                 if "--gtest_filter=" in (line := read(path / "cmdline")) and line.startswith(str(build))}
        first_seen = {pid: first_seen.get(pid, now) for pid in tests}
        for pid in tests - described:
            if now - first_seen[pid] > AGE:
                described.add(pid)
                family = [pid, *(other for other, path in processes.items() if parent_of(path) == pid)]
                with file.open("a") as out:
                    for member in family:
                        out.write("\n".join(describe(processes[member])) + "\n")
                    out.write("\n")
        time.sleep(PAUSE)


main()
