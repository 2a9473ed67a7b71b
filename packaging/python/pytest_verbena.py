# SPDX-License-Identifier: BSD-2-Clause
"""pytest plugin: tests of RDMA programs on adapters made of software.

    def test_pingpong(rdma_node):
        port = rdma_node.port()
        server = rdma_node.start("ibv_rc_pingpong", "-g", "1", "-p", port)
        rdma_node.wait_listening(port, server)
        rdma_node.run("ibv_rc_pingpong", "-g", "1", "-p", port, "localhost")
        server.finish()

Each test has a node of its own: its programs see each other, and programs of other tests do not see them,
also under pytest-xdist. When the test ends, what it has started is killed and the node is removed. What the
devices are is told by a mark with the options of `verbena run`:

    @pytest.mark.rdma_node(devices=2, link_layer="infiniband", profile="minimal")

The command is `verbena` of the tree that this plugin is installed in, otherwise that of PATH; --verbena names
another.
"""

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time
import uuid

import pytest

PATIENCE = 60  # seconds that a program may take, unless a test says otherwise
OPTIONS = ("devices", "link_layer", "profile")  # of the mark
LISTEN = "0A"  # TCP_LISTEN in /proc/net/tcp


class ProgramFailed(AssertionError):
    """A program ended otherwise than the test expects. The message shows what it printed."""


class Program:
    """A program that was started on the node, and everything that it starts: a process group."""

    def __init__(self, command, environment, files):
        self.command = [str(word) for word in command]
        self._files = [open(f"{files}.{stream}", "w+", errors="replace") for stream in ("out", "err")]
        self.process = subprocess.Popen(self.command, env=environment, stdin=subprocess.DEVNULL, stdout=self._files[0],
                                        stderr=self._files[1], start_new_session=True)

    @property
    def out(self):
        """What it has printed so far."""
        return self._read(0)

    @property
    def err(self):
        return self._read(1)

    def _read(self, which):
        return pathlib.Path(self._files[which].name).read_text(errors="replace")

    def finish(self, status=0, seconds=PATIENCE):
        """Waits for its end and returns it. Raises ProgramFailed for another exit status (negative: a
        signal), or when it still runs after `seconds`; `status` None takes any."""
        try:
            ended = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise ProgramFailed(f"still running after {seconds} s: {self}") from None
        if status is not None and ended != status:
            raise ProgramFailed(f"ended with status {ended}, not {status}: {self}")
        return self

    def kill(self):
        """Ends it and what it has started, and returns when they have ended. Any number of times."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        deadline = time.monotonic() + PATIENCE
        while _lives(self.process.pid):
            if time.monotonic() > deadline:
                raise ProgramFailed(f"not to be killed: {self}")
            time.sleep(0.005)

    def __str__(self):
        return f"{' '.join(self.command)}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


class RdmaNode:
    """One machine with its adapters, for the programs of one test."""

    def __init__(self, verbena, options, folder):
        self.verbena = str(verbena)
        self.name = f"pytest.{uuid.uuid4().hex[:16]}"
        self.options = [str(word) for word in options]
        self.folder = pathlib.Path(folder)
        self.programs = []
        self._reserved = []
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("VERBENA_NODE")}

    def start(self, *command, environment=None):
        """Starts a program that sees the node's devices; a Program. `environment`: variables besides the
        usual ones."""
        line = [self.verbena, "run", "--node", self.name, *self.options, "--", *command]
        program = Program(line, {**self._environment, **(environment or {})}, self.folder / f"program{len(self.programs)}")
        self.programs.append(program)
        return program

    def run(self, *command, status=0, seconds=PATIENCE, environment=None):
        """Runs a program to its end; a Program, whose output is in `out` and `err`. Raises as
        Program.finish() does."""
        return self.start(*command, environment=environment).finish(status, seconds)

    def port(self):
        """The number of a TCP port that nobody uses, for what programs exchange by themselves: another one
        each time. It is below the range from which the kernel takes the ports of outgoing connections."""
        first = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
        lowest = 10000 if first > 12000 else 1024
        for _ in range(1000):
            number = lowest + uuid.uuid4().int % (first - lowest)
            with socket.socket() as probe:
                try:
                    probe.bind(("", number))
                except OSError:
                    continue
            if number not in self._reserved:
                self._reserved.append(number)
                return number
        raise OSError("no free TCP port")

    def wait_listening(self, port, server, seconds=PATIENCE):
        """Returns when a program listens on the TCP port. Raises ProgramFailed when `server` ends before, or
        after `seconds`."""
        deadline = time.monotonic() + seconds
        while not _is_listening(port):
            if server.process.poll() is not None:
                raise ProgramFailed(f"ended before it listened on port {port}: {server}")
            if time.monotonic() > deadline:
                raise ProgramFailed(f"did not listen on port {port} within {seconds} s: {server}")
            time.sleep(0.005)

    def close(self):
        """Kills what the test has started, and removes the node."""
        for program in self.programs:
            program.kill()
        subprocess.run([self.verbena, "clean", "--here"], env=self._environment, stdout=subprocess.DEVNULL, check=True,
                       timeout=PATIENCE)


def _lives(group):
    """Is there a process of the process group that has not ended? A zombie has (proc(5), stat: state and pgrp)."""
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, of = stat.read_text(errors="replace").rpartition(")")[2].split()[:3]
        except OSError:  # it has ended meanwhile
            continue
        if int(of) == group and state not in "ZX":
            return True
    return False


def _is_listening(port):
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = pathlib.Path(table).read_text().splitlines()[1:]
        except OSError:  # no IPv6 here
            continue
        for local, state in ((line.split()[1], line.split()[3]) for line in lines):
            if state == LISTEN and int(local.rsplit(":", 1)[1], 16) == port:
                return True
    return False


def pytest_addoption(parser):
    parser.getgroup("verbena").addoption("--verbena", metavar="PROGRAM", help="the command verbena for the fixture rdma_node")


def pytest_configure(config):
    config.addinivalue_line("markers", "rdma_node(devices, link_layer, profile): the devices of the fixture rdma_node")


def _command(config):
    beside = pathlib.Path(__file__).resolve().parents[3] / "bin/verbena"  # PREFIX/share/verbena/python
    found = config.getoption("--verbena") or (str(beside) if beside.exists() else shutil.which("verbena"))
    if not found:
        pytest.fail("the command verbena is not in PATH: install the package verbena, or use --verbena", pytrace=False)
    return found


def _options(mark):
    """The mark's arguments as options of `verbena run`."""
    if mark is None:
        return []
    unknown = set(mark.kwargs) - set(OPTIONS)
    if mark.args or unknown:
        pytest.fail(f"rdma_node() takes {', '.join(OPTIONS)}, by name", pytrace=False)
    return [word for name, value in mark.kwargs.items() for word in (f"--{name.replace('_', '-')}", value)]


@pytest.fixture
def rdma_node(request, tmp_path):
    """A node of this test alone (RdmaNode)."""
    node = RdmaNode(_command(request.config), _options(request.node.get_closest_marker("rdma_node")), tmp_path)
    yield node
    node.close()
