# SPDX-License-Identifier: BSD-2-Clause
"""Runs the commands of one section of docs/DEBUGGING.md, "Twelve faults", and looks for the lines that the page quotes.

A section is named after its program (programs/NAME.c). In its indented blocks a line `$ COMMAND` is run by a shell, in a
folder that has the programs; the lines below it, up to the next command, must be said by it. `...` stands for lines that
are left out. A command that ends with `&` runs until the section ends; the next one starts when its lines have been said.

Numbers, addresses, paths and names of nodes differ from run to run: they are not compared, but for the lines of sources.
At last `verbena check -- ./NAME right` must find nothing.

usage: page.py VERBENA FOLDER_OF_PROGRAMS PAGE NAME
       page.py --names PAGE FOLDER_OF_SOURCES      the sections are the programs, twelve of each
"""

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading

TIMEOUT = 60


def sections(page):
    """name of the program -> the lines of its section"""
    part = page.read_text().split("\n## Twelve faults", 1)[1].split("\n## ", 1)[0]
    found = {}
    for text in part.split("\n### ")[1:]:
        name = re.search(r"\./([a-z-]+)", text)
        found[name.group(1) if name else text.splitlines()[0]] = text.splitlines()
    return found


def commands(lines):
    """[(command, quoted lines)]"""
    found = []
    for line in lines:
        if line.startswith("    $ "):
            found.append((line[6:], []))
        elif line.startswith("    ") and found and line.strip() not in ("", "..."):
            found[-1][1].append(line.strip())
    return found


def plain(line):
    """The line without what differs from run to run."""
    line = line.strip()
    line = re.sub(r"\d\d:\d\d:\d\d\.\d+", "TIME", line)
    line = re.sub(r"fe80::[0-9a-f:]+", "GID", line)
    line = re.sub(r'(?<![\w.])/[^\s:()"]*/', "", line)  # folders
    line = re.sub(r'node="[^"]*"', "NODE", line)
    line = re.sub(r"\.c:(\d+)", lambda match: ".c:" + "".join(chr(ord("a") + int(digit)) for digit in match[1]), line)
    line = re.sub(r"0x[0-9a-f]+", "HEX", line)
    return re.sub(r"\d+", lambda number: "0" if int(number[0]) == 0 else "N", line)  # none is not some


class Run:
    """A command, and what it says."""

    def __init__(self, command, folder, environment):
        self.command, self.said, self.changed = command, [], threading.Condition()
        self.process = subprocess.Popen(["/bin/bash", "-c", "exec 2>&1\n" + command], cwd=folder, env=environment, text=True,
                                        stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, start_new_session=True)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            with self.changed:
                self.said.append(line)
                self.changed.notify_all()

    def missing(self, quoted):
        said = {plain(line) for line in self.said}
        return [line for line in quoted if plain(line) not in said]

    def await_lines(self, quoted):
        with self.changed:
            self.changed.wait_for(lambda: not self.missing(quoted), TIMEOUT)
            return self.missing(quoted)

    def await_end(self):
        try:
            self.process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            self.end()
        self.reader.join(TIMEOUT)
        return self.process.returncode

    def end(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait(TIMEOUT)


def check(verbena, programs, page, name, folder):
    for program in programs.iterdir():
        (folder / program.name).symlink_to(program)
    environment = {**os.environ, "PATH": f"{verbena.parent}:{os.environ['PATH']}:/usr/sbin:/sbin", "TMPDIR": str(folder),
                   "XDG_RUNTIME_DIR": str(folder), "LC_ALL": "C"}
    environment.pop("VERBENA_LOG", None)
    problems, background = [], []
    found = commands(sections(page)[name])
    try:
        for command, quoted in found:
            run = Run(command.rstrip("& "), folder, environment)
            if command.endswith("&") or command.startswith("timeout "):
                background.append(run)
                missing = run.await_lines(quoted)
            else:
                run.await_end()
                missing = run.missing(quoted)
            if missing or not quoted:
                problems.append(f"$ {command}\n" + "".join(run.said) + "\nthe page also has:\n" + "\n".join(missing))
        right = Run(f"verbena check --error-exitcode 99 -- ./{name} right", folder, environment)
        if right.await_end() != 0:
            problems.append(f"./{name} right: exit status {right.process.returncode}\n" + "".join(right.said))
    finally:
        for run in background:
            run.end()
    if len(found) < 2:
        problems.append("the section has no two commands: the symptom, and how it is found")
    return problems


if sys.argv[1] == "--names":
    of_page = sorted(sections(pathlib.Path(sys.argv[2])))
    of_sources = sorted(file.stem for file in pathlib.Path(sys.argv[3]).glob("*.c"))
    print(f"sections: {of_page}\nprograms: {of_sources}")
    sys.exit(of_page != of_sources or len(of_page) != 12)
with tempfile.TemporaryDirectory() as temporary:
    faults = check(pathlib.Path(sys.argv[1]).absolute(), pathlib.Path(sys.argv[2]).absolute(), pathlib.Path(sys.argv[3]),
                   sys.argv[4], pathlib.Path(temporary))
print("\n\n".join(faults) or "all lines of the page were said")
sys.exit(bool(faults))
