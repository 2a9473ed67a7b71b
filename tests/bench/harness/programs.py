# SPDX-License-Identifier: BSD-2-Clause
"""Runs the measured programs: one alone, or two as server and client, each pinned to a CPU of its own.

Every run is bounded in time, and only processes started here are ended. Output goes to files, so that no program
waits for a reader while it is measured.
"""
import os
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from . import parse

TIME_LIMIT = 60.0  # seconds for one run of one pair
LISTEN_LIMIT = 10.0  # seconds until a server listens


# Installs every program and header that a row needs besides the build.
INSTALL = "scripts/install-packages.sh bench"


class Unavailable(Exception):
    """This figure is not available; str() says why, in one line without paths."""


class _Process:
    def __init__(self, command, cpu, environment):
        self.name = os.path.basename(command[0])
        self.output = tempfile.TemporaryFile()
        cpus = cpu if isinstance(cpu, set) else {cpu}
        pin = None if cpu is None else (lambda: os.sched_setaffinity(0, cpus))
        try:
            self.child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.output,
                                          stderr=subprocess.STDOUT, env=environment, start_new_session=True,
                                          preexec_fn=pin)
        except OSError as error:
            self.output.close()
            raise Unavailable("%s: %s" % (self.name, error.strerror))

    def text(self):
        # Not by seek and read: the program writes through the same offset.
        size = os.fstat(self.output.fileno()).st_size
        return os.pread(self.output.fileno(), size, 0).decode(errors="replace")

    def end(self):
        """Ends the process and its children, if it still runs. It leads a session of its own."""
        if self.child.poll() is None:
            try:
                os.killpg(self.child.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self.child.wait()
        self.output.close()


def find(name):
    """The program's path. Raises Unavailable if the machine does not have it."""
    path = shutil.which(name)
    if path is None:
        raise Unavailable("%s is not installed (%s)" % (name, INSTALL))
    return path


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _listens(port, pid="self"):
    """Whether some program listens on the TCP port, in the network namespace of a process; state 0A of /proc/net/tcp,
    proc(5). Looks without connecting, because the servers take the first connection for their client."""
    wanted = ":%04X" % port
    for table in ("/proc/%s/net/tcp" % pid, "/proc/%s/net/tcp6" % pid):
        try:
            with open(table) as lines:
                for line in lines:
                    words = line.split()
                    if len(words) > 3 and words[1].endswith(wanted) and words[3] == "0A":
                        return True
        except OSError:
            pass
    return False


def _environment(extra):
    return dict(os.environ, LC_ALL="C", **extra)


def _failed(processes, what):
    """Unavailable, with the line that explains most: first that of a process that failed by itself."""
    by_guilt = sorted(processes, key=lambda each: each.child.returncode in (None, 0))
    for process in by_guilt:
        line = parse.error_line(process.text())
        if line:
            return Unavailable("%s: %s" % (what, line))
    codes = ", ".join("%s %s" % (each.name, _ending(each.child.returncode)) for each in processes)
    return Unavailable("%s: %s" % (what, codes))


def _ending(code):
    if code is None:
        return "still runs"
    return "ended by signal %d" % -code if code < 0 else "exit status %d" % code


def alone(command, must_succeed=True):
    """Output of one program. Raises Unavailable if it takes too long or, unless told otherwise, fails."""
    process = _Process(command, None, _environment({}))
    try:
        try:
            process.child.wait(TIME_LIMIT)
        except subprocess.TimeoutExpired:
            raise _failed([process], "no end within %d s" % TIME_LIMIT)
        if must_succeed and process.child.returncode != 0:
            raise _failed([process], _ending(process.child.returncode))
        return process.text()
    finally:
        process.end()


def _await(processes, ready):
    """Returns when `ready()` says that the server, the first of them, may be asked."""
    limit = time.monotonic() + LISTEN_LIMIT
    while not ready():
        if processes[0].child.poll() is not None:
            raise _failed(processes, "server %s" % _ending(processes[0].child.returncode))
        if time.monotonic() > limit:
            raise _failed(processes, "server does not listen within %d s" % LISTEN_LIMIT)
        time.sleep(0.01)


def served(server, client, ready, cpus):
    """Output of the client of a server that runs until it is ended; `ready()` says when the client may start."""
    variables = _environment({})
    processes = [_Process(server, cpus[0], variables)]
    try:
        _await(processes, ready)
        processes.append(_Process(client, cpus[1], variables))
        try:
            processes[1].child.wait(TIME_LIMIT)
        except subprocess.TimeoutExpired:
            raise _failed(processes, "no end within %d s" % TIME_LIMIT)
        if processes[1].child.returncode != 0:
            raise _failed(processes[1:], _ending(processes[1].child.returncode))
        return processes[1].text()
    finally:
        for process in processes:
            process.end()


def pair(server, client, port, cpus, environment=None, server_pid="self"):
    """Output of the client; the server is started first and must listen on `port`, in the network namespace of process
    `server_pid`, before the client starts."""
    variables = _environment(environment or {})
    processes = [_Process(server, cpus[0], variables)]
    try:
        _await(processes, lambda: _listens(port, server_pid))
        processes.append(_Process(client, cpus[1], variables))
        try:
            processes[1].child.wait(TIME_LIMIT)
            processes[0].child.wait(5.0)
        except subprocess.TimeoutExpired:
            raise _failed(processes, "no end within %d s" % TIME_LIMIT)
        for process in reversed(processes):
            if process.child.returncode != 0:
                raise _failed([process], _ending(process.child.returncode))
        return processes[1].text()
    finally:
        for process in processes:
            process.end()


def cpu_seconds():
    """CPU time of all programs that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def pairs(servers, clients, ports, cpus):
    """Several pairs at once, on whichever of the CPUs they like: the seconds from the start of the clients to the end of
    all, and the seconds of CPU time that all of them used for each CPU."""
    variables, processes, before = _environment({}), [], cpu_seconds()
    try:
        for server in servers:
            processes.append(_Process(server, set(cpus), variables))
        _await(processes, lambda: all(_listens(port) for port in ports))
        begin = time.monotonic()
        for client in clients:
            processes.append(_Process(client, set(cpus), variables))
        for process in processes:
            try:
                process.child.wait(max(begin + TIME_LIMIT - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                raise _failed(processes, "no end within %d s" % TIME_LIMIT)
            if process.child.returncode != 0:
                raise _failed([process], _ending(process.child.returncode))
        return {"seconds": time.monotonic() - begin, "cpu_seconds": (cpu_seconds() - before) / len(cpus)}
    finally:
        for process in processes:
            process.end()
