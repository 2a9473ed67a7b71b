# SPDX-License-Identifier: BSD-2-Clause
"""Programs under `verbena run`, each with a time limit, and their node."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time

from harness.failure import Failure, expect


class Program:
    """One running program. Its output goes to files, so that no pipe can stop it."""

    def __init__(self, name, command, environment, folder):
        self.name = name
        self.command = command
        self._out = tempfile.TemporaryFile(mode="w+", dir=folder)
        self._err = tempfile.TemporaryFile(mode="w+", dir=folder)
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=self._out, stderr=self._err,
            start_new_session=True)
        self.pid = self._process.pid  # `verbena run` becomes the program: execve, not fork

    def poll(self):
        return self._process.poll()

    def wait(self, seconds):
        """The exit status (negative: ended by that signal)."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failure(f"{self.name} still ran after {seconds:.0f} s") from None

    def signal(self, number):
        self._process.send_signal(number)

    def kill(self):
        """Ends the program and everything it started."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()

    @property
    def out(self):
        return self._read(self._out)

    @property
    def err(self):
        return self._read(self._err)

    @staticmethod
    def _read(file):
        # Not by seek and read: the program writes through the same offset, and would overwrite its first lines.
        size = os.fstat(file.fileno()).st_size
        return os.pread(file.fileno(), size, 0).decode(errors="replace")

    def wait_for_output(self, text, seconds):
        self.wait_for_lines(text, 1, seconds)

    def wait_for_lines(self, text, times, seconds, said=None):
        """Waits until it has printed `text` so many times; `said`: where, else on standard output."""
        deadline = time.monotonic() + seconds
        while (said() if said else self.out).count(text) < times:
            if self.poll() is not None:
                raise Failure(f"{self.name} ended with status {self.poll()} without saying '{text}'")
            if time.monotonic() > deadline:
                raise Failure(f"{self.name} did not say '{text}' within {seconds:.0f} s")
            time.sleep(0.005)

    def cpu_ticks(self):
        """utime + stime of all its threads, in clock ticks (proc(5), fields 14 and 15)."""
        fields = open(f"/proc/{self.pid}/stat").read().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    def transcript(self):
        status = self.poll()
        end = "still running" if status is None else f"status {status}"
        return (f"--- {self.name}: {' '.join(self.command)} ({end})\n{self.out}"
                f"{'--- its stderr:' + chr(10) + self.err if self.err else ''}")


class Node:
    """A Verbena node of this test alone. A context manager: at its end nothing that it started is left."""

    def __init__(self, settings, options=(), as_user=None, verbena=None):
        self.settings = settings
        self.options = list(options)  # of `verbena run`
        self.verbena = verbena or settings.verbena
        self._as_user = list(as_user or ())  # a command before `verbena`, to become another user
        self._programs = []
        # Short on purpose: a unix socket's path has 107 characters.
        self.folder = tempfile.mkdtemp(prefix="vp.")

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        for program in self._programs:
            program.kill()
        if kind is not None:
            print(self.transcript())
        shutil.rmtree(self.folder, ignore_errors=True)

    def transcript(self):
        return "\n".join(program.transcript() for program in self._programs)

    def environment(self):
        environment = dict(os.environ)
        for name in ("LD_PRELOAD", "VERBENA_NODE"):
            environment.pop(name, None)
        environment["XDG_RUNTIME_DIR"] = self.folder
        environment.setdefault("VERBENA_LOG", "warn")
        environment["UBSAN_OPTIONS"] = "print_stacktrace=1"
        return environment

    def enter_by(self, *command):
        """From now on programs are started here by `command`."""
        self._as_user = list(map(str, command))

    def give_to(self, uid, gid):
        os.chown(self.folder, uid, gid)

    def start(self, *command, name=None):
        """Starts `command` under `verbena run`."""
        line = [*self._as_user, self.verbena, "run", *map(str, self.options), "--", *map(str, command)]
        program = Program(name or command[0], line, self.environment(), None)
        self._programs.append(program)
        return program

    def start_beside(self, *command, name=None, more={}):
        """Starts `command` by itself, not under `verbena run`; `more`: variables of its environment."""
        line = [*self._as_user, *map(str, command)]
        program = Program(name or command[0], line, {**self.environment(), **more}, None)
        self._programs.append(program)
        return program

    def run(self, *command, name=None, status=0):
        """Runs `command` under `verbena run` to its end and returns it."""
        return self.ended(self.start(*command, name=name), status)

    def ended(self, program, status=0):
        seen = program.wait(self.settings.patience)
        expect(seen == status, f"{program.name} ended with status {seen}, not {status}")
        return program

    def processes(self):
        """The output of `verbena status --json` about the processes of this node."""
        line = [*self._as_user, self.verbena, "status", "--json"]
        program = Program("verbena status", line, self.environment(), None)
        self._programs.append(program)
        seen = program.wait(self.settings.patience)
        expect(seen == 0, f"verbena status --json ended with status {seen}")
        nodes = json.loads(program.out)["nodes"]
        return [process for node in nodes for process in node.get("processes", [])]
