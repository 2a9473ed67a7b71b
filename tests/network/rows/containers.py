# SPDX-License-Identifier: BSD-2-Clause
"""Two containers as an engine makes them by default, with docker/entry as their entry point, try each other.

Each has a network, processes, and /tmp of its own, 64 MB of /dev/shm, a file system that is read-only, a user who is not
root and has no capabilities, and the engines' filter of system calls. The images' own file systems: docker/README.md.
"""

import os
import shutil

from harness.failure import Skip, expect
from harness.processes import Program
from places import seccomp
from rows.table import group

HERE = os.path.dirname(os.path.abspath(__file__))
DOCKER = os.path.normpath(os.path.join(HERE, "..", "..", "..", "docker"))
SHM_BYTES = 64 << 20
USER = "10001"

alone = group("container", places=("namespaces",), needs_network=False)
pairs = group("containers", places=("namespaces",))


def start(host, *command, variables=(), filtered=True):
    """Starts `command` through docker/entry in a container on `host`."""
    if shutil.which("bwrap") is None:
        raise Skip("bwrap (package bubblewrap) is not installed")
    filter_file = os.path.join(host.folder, "filter")
    if filtered:
        seccomp.write_filter(filter_file)
    with open(os.path.join(host.folder, "passwd"), "w") as file:
        file.write(f"verbena:x:{USER}:{USER}::/tmp:/bin/sh\n")
    # Seen also where the build lies below /tmp.
    binaries = os.path.dirname(os.path.abspath(host.verbena))
    libraries = os.path.join(os.path.dirname(binaries), "lib")
    line = ["bwrap", "--unshare-user", "--uid", USER, "--gid", USER, "--unshare-pid", "--unshare-ipc", "--unshare-uts",
            "--die-with-parent", "--cap-drop", "ALL", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev",
            "--size", str(SHM_BYTES), "--tmpfs", "/dev/shm", "--tmpfs", "/tmp",
            *(word for folder in (binaries, libraries, DOCKER) for word in ("--ro-bind", folder, folder)),
            *(("--ro-bind", host.key, "/tmp/fabric-key") if host.key and os.path.exists(host.key) else ()),
            "--ro-bind", os.path.join(host.folder, "passwd"), "/etc/passwd", "--clearenv"]
    for name, value in {"PATH": f"{binaries}:{os.environ['PATH']}", "VERBENA_LOG": "warn", **dict(variables)}.items():
        line += ["--setenv", name, value]
    line += [*(("--seccomp", "9") if filtered else ()), "--", os.path.join(DOCKER, "entry"), *map(str, command)]
    if filtered:
        line = ["sh", "-c", f'exec "$@" 9<{filter_file}', "sh", *line]
    program = Program(f"{command[0]} in a container on {host.name}", [*host.enter, *line], host.environment(), None)
    host.adopt(program)
    return program


def run(host, *command, **more):
    program = start(host, *command, **more)
    seen = program.wait(host.settings.patience)
    expect(seen == 0, f"{program.name} ended with status {seen}")
    return program


@alone.row("defaults_hold")
def defaults_hold(hosts):
    """The container is as said above: this row is about the test, not about Verbena."""
    seen = run(hosts[0], "sh", "-c", "id -u; df -B1 --output=size /dev/shm | tail -1; ls /proc | grep -c '^[0-9]';"
               " grep -E 'CapEff|Seccomp:' /proc/self/status; touch /verbena 2>&1 || true").out
    for wanted in (USER, str(SHM_BYTES), "CapEff:\t0000000000000000", "Seccomp:\t2", "Read-only file system"):
        expect(wanted in seen, f"'{wanted}' is not in: {seen}")


@alone.row("device_is_there")
def device_is_there(hosts):
    expect("verbena0" in run(hosts[0], "ibv_devinfo").out, "ibv_devinfo shows no verbena0")


for test in ("pingpong", "perftest"):
    alone.add(f"both_ends_inside.{test}", lambda hosts, t=test: run(
        hosts[0], "sh", "-c", f"{DOCKER}/pair server & {DOCKER}/pair client 127.0.0.1 {t}"))


def pair(hosts, test, filtered=True):
    def variables(host):
        return {"VERBENA_IP": host.address, "VERBENA_KEY_FILE": "/tmp/fabric-key"}
    server, client = hosts
    start(server, f"{DOCKER}/pair", "server", variables=variables(server), filtered=filtered)
    seen = run(client, f"{DOCKER}/pair", "client", server.address, test, variables=variables(client), filtered=filtered)
    expect("verbena-pair: well" in seen.out, "the pair does not say that all is well")


for test in ("pingpong", "perftest", "conformance"):
    pairs.add(test, lambda hosts, t=test: pair(hosts, t))
pairs.add("pingpong_without_filter", lambda hosts: pair(hosts, "pingpong", False))
