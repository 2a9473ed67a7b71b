# SPDX-License-Identifier: BSD-2-Clause
"""Two containers as an engine makes them by default, with docker/entry as their entry point, try each other.

Each has a network, processes, and /tmp of its own, 64 MB of /dev/shm, a read-only file system, a user who is not root
and has no capabilities, and the engines' filter of system calls. The images' own file systems: docker/README.md.
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
KEY = "/tmp/fabric-key"

alone = group("container", places=("namespaces",), needs_network=False)
pairs = group("containers", places=("namespaces",))


def start(host, *command, variables=(), filtered=True, image=None):
    """Starts `command` through the entry script in a container on `host`: on the machine's file system, with the
    device of the build under test, or on that of an image, with its own."""
    if shutil.which("bwrap") is None:
        raise Skip("bwrap (package bubblewrap) is not installed")
    filter_file = os.path.join(host.folder, "filter")
    if filtered:
        seccomp.write_filter(filter_file)
    key = ("--ro-bind", host.key, KEY) if host.key and os.path.exists(host.key) else ()
    root, path, entry = of_image(image) if image else of_machine(host)
    line = ["bwrap", "--unshare-user", "--uid", USER, "--gid", USER, "--unshare-pid", "--unshare-ipc", "--unshare-uts",
            "--die-with-parent", "--cap-drop", "ALL", *root, "--proc", "/proc", "--dev", "/dev",
            "--size", str(SHM_BYTES), "--tmpfs", "/dev/shm", *key, "--clearenv"]
    for name, value in {"PATH": path, "VERBENA_LOG": "warn", **dict(variables)}.items():
        line += ["--setenv", name, value]
    line += [*(("--seccomp", "9") if filtered else ()), "--", entry, *map(str, command)]
    if filtered:
        line = ["sh", "-c", f'exec "$@" 9<{filter_file}', "sh", *line]
    program = Program(f"{command[0]} in a container on {host.name}", [*host.enter, *line], host.environment(), None)
    host.adopt(program)
    return program


def of_machine(host):
    """(bwrap's options, PATH, entry script)"""
    passwd = os.path.join(host.folder, "passwd")
    with open(passwd, "w") as file:
        file.write(f"verbena:x:{USER}:{USER}::/tmp:/bin/sh\n")
    # Bound once more, to be seen also where the build lies below /tmp.
    binaries = os.path.dirname(os.path.abspath(host.verbena))
    libraries = os.path.join(os.path.dirname(binaries), "lib")
    options = ["--ro-bind", "/", "/", "--tmpfs", "/tmp", "--ro-bind", passwd, "/etc/passwd"]
    for folder in (binaries, libraries, DOCKER):
        options += ["--ro-bind", folder, folder]
    return options, f"{binaries}:{os.environ['PATH']}", os.path.join(DOCKER, "entry")


def of_image(folder):
    return (["--ro-bind", folder, "/", "--tmpfs", "/tmp", "--chdir", "/home/verbena"], "/usr/local/bin:/usr/bin:/bin",
            "verbena-entry")


def run(host, *command, **more):
    program = start(host, *command, **more)
    seen = program.wait(host.settings.patience)
    expect(seen == 0, f"{program.name} ended with status {seen}")
    return program


@alone.row("defaults_hold")
def defaults_hold(hosts):
    """The container is as described above: this row is about the test, not about Verbena."""
    seen = run(hosts[0], "sh", "-c", "id -u; df -B1 --output=size /dev/shm | tail -1; ls /proc | grep -c '^[0-9]';"
               " grep -E 'CapEff|Seccomp:' /proc/self/status; touch /verbena 2>&1 || true").out
    for wanted in (USER, str(SHM_BYTES), "CapEff:\t0000000000000000", "Seccomp:\t2", "Read-only file system"):
        expect(wanted in seen, f"'{wanted}' is not in: {seen}")


@alone.row("device_is_there")
def device_is_there(hosts):
    expect("verbena0" in run(hosts[0], "ibv_devinfo").out, "ibv_devinfo shows no verbena0")


for test in ("pingpong", "perftest"):
    alone.add(f"both_ends_inside.{test}", lambda hosts, t=test: run(
        hosts[0], "sh", "-c", f"{DOCKER}/pair server & {DOCKER}/pair client 127.0.0.1 {t}"), quick=test == "pingpong")


def pair(hosts, test, program, **more):
    def variables(host):
        return {"VERBENA_IP": host.address, "VERBENA_KEY_FILE": KEY}
    server, client = hosts
    start(server, program, "server", variables=variables(server), **more)
    seen = run(client, program, "client", server.address, test, variables=variables(client), **more)
    expect("verbena-pair: well" in seen.out, "the pair does not say that all is well")


PAIR = os.path.join(DOCKER, "pair")
TESTS = ("pingpong", "perftest", "conformance")
for test in TESTS:
    pairs.add(test, lambda hosts, t=test: pair(hosts, t, PAIR), quick=test != "conformance")
pairs.add("pingpong_without_filter", lambda hosts: pair(hosts, "pingpong", PAIR, filtered=False))

by_roce = group("containers_roce", places=("namespaces",), roce=True)


def pair_by_roce(hosts, test):
    """As docker/compose-roce.yaml has it, but that an address is named."""
    def variables(host):
        return {"VERBENA_ROCE": host.address, "VERBENA_PEERS": "10.77.0.0/24"}
    server, client = hosts
    start(server, PAIR, "server", variables=variables(server))
    seen = run(client, PAIR, "client", server.address, test, variables=variables(client))
    expect("verbena-pair: well" in seen.out, "the pair does not say that all is well")


for test in TESTS:
    by_roce.add(test, lambda hosts, t=test: pair_by_roce(hosts, t), quick=test == "pingpong")


# The images themselves, unpacked by docker/build-images; by hand, since building them takes long.
images = group("images", places=(), needs_network=False)
images_apart = group("images_apart", places=())


def unpacked(name):
    folder = os.path.join(os.environ.get("VERBENA_TEST_IMAGES", ""), name)
    if not os.path.isdir(os.path.join(folder, "usr")):
        raise Skip("--images names no folder that docker/build-images has filled")
    return folder


@images.row("runtime_sees_the_device")
def runtime_sees_the_device(hosts):
    """No program of the image looks at devices but one of our own, here a shell."""
    seen = run(hosts[0], "sh", "-c", "ls /sys/class/infiniband; cat /sys/class/infiniband/verbena0/node_guid",
               image=unpacked("runtime"))
    expect("verbena0" in seen.out, f"the runtime image shows {seen.out}")
    run(hosts[0], "verbena", "doctor", image=unpacked("runtime"))


@images.row("devel_passes_quick_conformance")
def devel_passes_quick_conformance(hosts):
    expect("0 DEVIATES" in run(hosts[0], "verbs-conformance", "--quick", image=unpacked("devel")).out,
           "the suite deviates")


for test in TESTS:
    images_apart.add(test, lambda hosts, t=test: pair(hosts, t, "verbena-pair", image=unpacked("devel")))
