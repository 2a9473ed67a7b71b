# SPDX-License-Identifier: BSD-2-Clause
"""What programs leave behind, what others delete under them, and what debuggers and checkers see of them."""

import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import time

from cases.pingpong import PROGRAM
from harness.failure import Skip, expect
from harness.pair import run_pair
from harness.processes import Node
from harness.registry import case

LEAVER = "bin/programs_leaver"
GDB_SCRIPT = pathlib.Path(__file__).resolve().parents[3] / "emulator/tool/gdb/verbena.py"


def leaver(settings, kind=""):
    return os.path.join(settings.build, LEAVER + kind)


def needed(program):
    if shutil.which(program) is None:
        raise Skip(f"{program} is not installed")


def nodes(node):
    folder = pathlib.Path(node.folder) / "verbena"
    return [entry for entry in folder.iterdir() if not entry.name.startswith(".")] if folder.exists() else []


@case("nothing_is_left", quick=True, processors=1)
def nothing_is_left(settings):
    """A node goes with its program, whether that closes the device or not; the next program removes it if killed."""
    with Node(settings) as node:
        for end in ("close", "leak"):
            node.run(leaver(settings), end)
            expect(nodes(node) == [], f"{end}: {nodes(node)}")
        node.run(leaver(settings), "abort", status=-6)
        expect(len(nodes(node)) == 1, f"the killed program's node is not there: {nodes(node)}")
        node.options = ["--node", "other"]
        node.run(leaver(settings), "close")
        expect(nodes(node) == [], f"after the next program: {nodes(node)}")


@case("env.node_that_is_gone", processors=1)
def node_that_is_gone(settings):
    """Programs of a shell whose node nobody holds any more make it again, with its devices."""
    with Node(settings) as node:
        lines = os.path.join(node.folder, "lines")
        node.ended(node.start_beside("sh", "-c", f"{settings.verbena} env --devices 2 --profile minimal >{lines}"))
        node.ended(node.start_beside(settings.verbena, "clean", "--here"))
        expect(nodes(node) == [], f"the node is held: {nodes(node)}")
        seen = node.ended(node.start_beside("sh", "-c", f". {lines}; ibv_devices; exec ibv_devinfo -v -d verbena1"))
        expect("verbena1" in seen.out and "PORT_ACTIVE" in seen.out, "the devices are not there")
        expect(re.search(r"max_srq:\s+0\n", seen.out) is not None, "the profile is another one")
        expect(nodes(node) == [], f"left: {nodes(node)}")


def message_by_cm(node, settings, what):
    client = node.start("rping", "-c", "-v", "-C", "2", "-a", "127.0.0.1", name="client")
    client.wait(settings.patience)  # its status: rping closes its event channel while its own thread still reads it
    expect(client.out.count("ping data") == 2, f"{what}: a new process does not reach the old one")


@case("cleaner.deletes_files", processors=1)
def cleaner_deletes_files(settings):
    """Each file of a living node is deleted, then all at once: new processes reach the old one."""
    with Node(settings) as node:
        server = node.start("rping", "-s", "-P", "-a", "127.0.0.1", name="the old one")
        message_until_it_listens(node, settings)
        path = nodes(node)[0]
        files = [file for file in sorted(path.rglob("*")) if not file.is_dir() or file.is_symlink()]
        expect(any(file.name == "cm-ids" for file in files), "no table of CM ids")
        for file in files:
            if file.is_symlink() or file.exists():
                file.unlink()
                message_by_cm(node, settings, str(file.relative_to(path)))
        shutil.rmtree(path, ignore_errors=True)
        message_by_cm(node, settings, "all files")
        shutil.rmtree(path, ignore_errors=True)
        run_pair(node, PROGRAM, both=("-g", "1", "-n", "10"))
        expect(server.poll() is None, "the old one has ended")


def message_until_it_listens(node, settings):
    deadline = time.monotonic() + settings.patience
    while True:
        client = node.start("rping", "-c", "-v", "-C", "1", "-a", "127.0.0.1", name="first client")
        client.wait(settings.patience)
        if "ping data" in client.out:
            return
        expect(time.monotonic() < deadline, "the old one does not listen")


@case("core.small_and_readable", processors=1)
def core_small_and_readable(settings):
    """The core of a program that aborts with open queue pairs is small, and gdb shows the adapter."""
    needed("gdb")
    with Node(settings) as node:
        core = os.path.join(node.folder, "core")
        dumped = node.run("gdb", "-batch", "-ex", "run", "-ex", f"generate-core-file {core}", "--args", leaver(settings),
                          "abort")
        qpn = re.search(r"qp (0x[0-9a-f]{6})", dumped.out).group(1)
        size = os.stat(core).st_size
        expect(size < 100_000_000, f"the core has {size} bytes")
        shown = node.ended(node.start_beside("gdb", "-batch", "-x", GDB_SCRIPT, "-ex", "verbena", leaver(settings), core))
        expect(re.search(rf"0 +{qpn} +RC +RESET", shown.out) is not None, "the queue pair is not shown")
        expect("completion queues: 1" in shown.out and "memory regions: 1" in shown.out, "an object is not shown")
        expect(re.search(r"0x201 +0x301 +region +1 +0x1 +0x[0-9a-f]+ +4096", shown.out), "the region is another one")


@case("valgrind.leaked_device", processors=1)
def valgrind_leaked_device(settings):
    """valgrind's leak check on a program that leaks its device ends in seconds, within 1 GB."""
    needed("valgrind")
    with Node(settings) as node:
        begun = time.monotonic()
        program = node.run("valgrind", "--leak-check=full", "--error-exitcode=9", "--errors-for-leak-kinds=none",
                           leaver(settings), "leak")
        took = time.monotonic() - begun
        most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        expect("LEAK SUMMARY" in program.err and "qp 0x" in program.out, "the program has not run")
        expect(took < 30, f"it took {took:.0f} s")
        expect(most < 1_000_000, f"it had {most} KiB")


@case("sanitized.device_is_closed", processors=1)
def sanitized_device_is_closed(settings):
    """-fsanitize=thread and =address report nothing of a program that closes what it opens."""
    with Node(settings) as node:
        for kind in ("_tsan", "_asan"):
            if not os.path.exists(leaver(settings, kind)):
                raise Skip("a sanitised build has no programs with another sanitizer")
            for _ in range(5):
                program = node.run(leaver(settings, kind), "close")
                expect("Sanitizer" not in program.err, f"{kind}: {program.err}")


@case("sanitized.leaks_are_found", processors=1)
def sanitized_leaks_are_found(settings):
    """The leak check of -fsanitize=address works, and accuses no library."""
    if not os.path.exists(leaver(settings, "_leak")):
        raise Skip("a sanitised build has no such program")
    with Node(settings) as node:
        fine = node.run(leaver(settings, "_leak"), "close")
        expect("Sanitizer" not in fine.err, f"it reports leaks of others: {fine.err}")
        leaks = node.run(leaver(settings, "_leak"), "forget", status=1)
        expect("detected memory leaks" in leaks.err and "forgotten" in leaks.err, f"no leak is reported: {leaks.err}")


@case("limits.address_space", processors=1)
def limits_address_space(settings):
    """`ulimit -v` of 8 GiB works for two processes; one that is too small is refused in one line, as is `ulimit -n`."""
    with Node(settings) as node:
        limited = ["sh", "-c", 'ulimit -v 8388608; exec "$@"', "sh"]
        run_pair(node, PROGRAM, both=("-g", "1", "-n", "10"), prefix=limited)
        for limit in ("-v 300000", "-n 12"):
            refused = node.run("sh", "-c", f'ulimit {limit}; exec "$@"', "sh", leaver(settings), "close", status=1)
            lines = [line for line in refused.err.splitlines() if "error" in line]
            expect(len(lines) == 1 and f"ulimit {limit}" in lines[0], f"it says {refused.err}")


@case("cleaner.other_network", processors=1)
def cleaner_other_network(settings):
    """A process of another network namespace, which sees no abstract sockets, reaches the old one within 30 s."""
    if subprocess.run(["unshare", "-n", "true"], check=False, capture_output=True).returncode != 0:
        raise Skip("no network namespaces here")
    with Node(settings) as node:
        old = node.start("ibv_asyncwatch", name="the old one")
        old.wait_for_output("async event FD", settings.patience)
        look = ["unshare", "-n", settings.verbena, "run", "--", settings.verbena, "status", "--json"]
        shutil.rmtree(nodes(node)[0])
        deadline = time.monotonic() + 40
        while True:
            seen = json.loads(node.ended(node.start_beside(*look)).out)
            processes = seen["nodes"][0]["processes"]
            expect([process["pid"] for process in processes] == [old.pid], f"another node: {processes}")
            if not processes[0].get("problem"):
                return
            expect(time.monotonic() < deadline, f"it is not reached: {processes[0]['problem']}")
            time.sleep(1)
