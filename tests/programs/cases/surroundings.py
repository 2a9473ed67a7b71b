# SPDX-License-Identifier: BSD-2-Clause
"""The environment of a program: the machine's own devices, its network, the shell that started it, its compiler."""

import os
import pathlib
import re
import shutil
import tempfile

from cases.pingpong import PROGRAM, check
from cases.rdma_cm import ADDRESS, finish, installed, wait_for
from harness import ports
from harness.failure import Skip, expect
from harness.pair import no_trouble
from harness.processes import Node
from harness.refusing import refusing
from harness.registry import add, case

DEMO = pathlib.Path(__file__).resolve().parents[3] / "demo.sh"
# The findings that demo.sh prints, with their numbers.
SHOWN = (r'Under "verbena run" a program sees this one',
         r"hca_id:\s+verbena0",
         r"state:\s+PORT_ACTIVE",
         r"found an RDMA device named verbena0 here",
         r"exchanged (?P<rounds>\d+) messages in each direction",
         r"the bytes that arrived were the right ones",
         r"One RDMA WRITE of 8 bytes took (?P<latency>[\d.]+) microseconds",
         r"RDMA WRITEs of 64 KiB moved (?P<bandwidth>[\d.]+) MB per second")


@case("demo", processors=1)
def demo(settings):
    """demo.sh on this build: it shows the build's features."""
    with Node(settings) as node:
        shown = node.ended(node.start_beside("bash", DEMO, more={"VERBENA_DEMO_BUILD": settings.build}))
        for words in SHOWN:
            found = re.search(words, shown.out)
            expect(found is not None, f"demo.sh does not say: {words}")
            for name, number in found.groupdict().items():
                expect(float(number) > 0, f"{name} is {number}")


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def adapters_of_the_machine(folder):
    """What sysfs and /dev show of an adapter of the machine: the files that libibverbs reads."""
    folder = pathlib.Path(folder)
    adapter, verbs = folder / "class/infiniband/mlx5_0", folder / "class/infiniband_verbs/uverbs0"
    write(adapter / "node_guid", "0002:c903:0000:1234\n")
    write(adapter / "node_type", "1: CA\n")
    write(adapter / "ports/1/state", "4: ACTIVE\n")
    write(verbs / "ibdev", "mlx5_0\n")
    write(verbs / "abi_version", "1\n")
    write(folder / "class/infiniband_verbs/abi_version", "6\n")
    write(folder / "dev/uverbs0", "")
    write(folder / "dev/uverbs9", "")
    return folder


@case("hides_real_devices", quick=True, processors=1)
def hides_real_devices(settings):
    """On a machine with adapters, programs see ours and none of those."""
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise Skip("there is no bwrap")
    with tempfile.TemporaryDirectory(prefix="vp.") as folder:
        machine = adapters_of_the_machine(folder)
        # sysfs takes no new folder to mount on: its classes come from another file system, with these two in it.
        there = (bwrap, "--dev-bind", "/", "/", "--bind", machine / "class", "/sys/class", "--tmpfs", "/dev/infiniband",
                 "--bind", machine / "dev", "/dev/infiniband")
        if not os.path.isdir("/dev/infiniband"):
            there = (bwrap, "--bind", "/", "/", "--dev", "/dev", "--bind", tempfile.gettempdir(), tempfile.gettempdir(),
                     "--bind", machine / "class", "/sys/class", "--bind", machine / "dev", "/dev/infiniband")
        with Node(settings, as_user=map(str, there)) as node:
            seen = node.start_beside("ls", "/sys/class/infiniband", "/dev/infiniband")
            if seen.wait(settings.patience) != 0:
                raise Skip(f"the machine forbids such a view of itself: {seen.err}")
            expect("mlx5_0" in seen.out and "uverbs9" in seen.out, f"the view lacks its adapters: {seen.out}")
            listed = node.run("ibv_devices").out
            expect("verbena0" in listed and "mlx5_0" not in listed, f"ibv_devices: {listed}")
            expect(node.run("ls", "/sys/class/infiniband").out.split() == ["verbena0"], "ls shows another adapter")
            expect("uverbs9" not in node.run("ls", "/dev/infiniband").out, "ls shows another device file")
            for path in ("/sys/class/infiniband/mlx5_0/node_guid", "/dev/infiniband/uverbs9"):
                node.run("cat", path, status=1)
            names = "import os; print(*os.listdir('/sys/class/infiniband'), os.path.exists('/dev/infiniband/uverbs9'))"
            expect(node.run("python3", "-c", names).out.split() == ["verbena0", "False"], "Python sees another adapter")


@case("loopback_alone", processors=1)
def loopback_alone(settings):
    """A machine whose only network is its loopback device."""
    with Node(settings) as node:
        holder = node.start_beside("unshare", "--user", "--map-root-user", "--net", "sh", "-c",
                                   "ip link set lo up && echo up && exec sleep 1000", name="the machine")
        try:
            holder.wait_for_output("up", settings.patience)
        except Exception:
            raise Skip(f"the machine makes no network namespaces: {holder.err}") from None
        node.enter_by("nsenter", "--user", "--net", "--preserve-credentials", "--target", holder.pid)
        devices = node.run("ibv_devinfo", "-v").out
        expect(re.search(r"GID\[\s*0\]:\s+fe80:", devices), f"there is no link-local GID: {devices}")
        expect(re.search(r"GID\[\s*1\]:\s+::ffff:127\.0\.0\.1", devices), f"the loopback address is no GID: {devices}")
        port = ports.reserve()
        both = ("-g", 1, "-n", 100, "-c", "-p", port)
        server = node.start(PROGRAM, *both, name="server")
        ports.wait_listening(port, server, settings.patience, of=holder.pid)
        client = node.start(PROGRAM, *both, "127.0.0.1", name="client")
        for side in (node.ended(server), node.ended(client)):
            no_trouble(side)
            check(side, 4096, 100)


@case("ibv_devices.sixteen", processors=1)
def sixteen_devices(settings):
    with Node(settings, ["--devices", "16"]) as node:
        names = re.findall(r"^\s*(verbena\d+)\s", node.run("ibv_devices").out, re.M)
        expect(sorted(names) == sorted(f"verbena{i}" for i in range(16)), f"the devices are {names}")
        for name in ("verbena0", "verbena15"):
            expect("PORT_ACTIVE" in node.run("ibv_devinfo", "-d", name).out, f"{name} cannot be opened")


@case("env.eval", processors=1)
def env_eval(settings):
    """The output of `verbena env` gives the device to the shell and to all that it starts."""
    with Node(settings) as node:
        line = f'eval "$({node.verbena} env)"; ibv_devices | grep verbena0 && exec ibv_devinfo -d verbena0'
        seen = node.ended(node.start_beside("sh", "-c", line, name="a shell"))
        expect("PORT_ACTIVE" in seen.out, f"the device cannot be opened: {seen.out}")


REACH = "memory of another process: "


def doctors_words(settings, what):
    """The verdict about other processes' memory where `what` is refused, the finding, and the remedy."""
    with Node(settings) as node:
        node.enter_by(*refusing(settings, what))
        # A leak detector's check at the end needs ptrace(2), which is refused here, too.
        doctor = node.start_beside(node.verbena, "doctor", more={"ASAN_OPTIONS": "detect_leaks=0"})
        doctor.wait(settings.patience)
        found = re.search(r"^(\w+) +" + REACH + r"(.*)\n +remedy: (.*)$", doctor.out, re.M)
        expect(found is not None, f"verbena doctor does not speak of it: {doctor.out}{doctor.err}")
        return doctor.poll(), *found.groups()


@case("doctor.process_vm_refused", quick=True, processors=1)
def doctor_process_vm_refused(settings):
    """The output of verbena doctor where the kernel gives less access to other processes."""
    for error, word in (("EPERM", "Operation not permitted"), ("ENOSYS", "Function not implemented")):
        status, verdict, found, remedy = doctors_words(settings, error)
        expect(status == 0 and verdict == "note", f"{error}: status {status}, {verdict}")
        expect(word in found and "slower" in found, f"{error}: {found}")
        expect("process_vm_readv" in remedy or "ptrace_scope" in remedy, f"{error}: {remedy}")


EMULATOR = "libverbena-provider.so"


@case("loaded_when_needed", quick=True, processors=1)
def loaded_when_needed(settings):
    """Programs that do not use RDMA have nothing of the emulator in them."""
    with Node(settings) as node:
        for command in (("cat", "/proc/self/maps"), ("python3", "-c", "print(open('/proc/self/maps').read())"),
                        ("bash", "-c", "ls /sys/class/infiniband; cat /proc/$$/maps")):
            maps = node.run(*command).out
            expect("libverbena-preload.so" in maps, f"{command[0]} has no preload")
            expect(EMULATOR not in maps, f"{command[0]} has loaded the emulator")
        watch = node.start("ibv_asyncwatch")
        watch.wait_for_output("async event FD", settings.patience)
        expect(EMULATOR in open(f"/proc/{watch.pid}/maps").read(), "ibv_asyncwatch has not loaded the emulator")


def preloaded_epoll(settings, run_options=(), address=ADDRESS):
    """The adapter does not use the epoll of a library that the program preloads."""
    installed("rping")
    preloaded = {"LD_PRELOAD": os.path.join(settings.build, "tests/programs/libprograms_own_epoll.so")}
    with Node(settings, run_options) as node:
        def start(name, *options):
            return node.start_beside(node.verbena, "run", *map(str, run_options), "--", "rping", "-C", 10, "-a", address, *options,
                                     name=f"rping ({name})", more=preloaded)

        server = start("server", "-s")
        wait_for(node, "listeners")
        client = start("client", "-c", "-v")
        finish(node, client, server)
        expect("ping data: rdma-ping-9" in client.out, "rping has sent less")


# Not quick, and so not under the address sanitizer: its runtime has to come before what a program preloads.
add("preloaded_epoll.plain", preloaded_epoll)
add("preloaded_epoll.tcp", lambda settings: preloaded_epoll(settings, ("--ip", ADDRESS, "--port", ports.reserve())))
add("preloaded_epoll.roce", lambda settings: preloaded_epoll(settings, ("--roce", "127.0.14.1"), "127.0.14.1"))


@case("sanitized_sender", processors=1)
def sanitized_sender(settings):
    """A program built with the address sanitizer sends, writes and reads with the adapter as it is installed."""
    program = os.path.join(settings.build, "bin", "programs_sanitized_sender")
    if not os.path.exists(program):
        raise Skip("the build is sanitised itself, and so is every program of it")
    with Node(settings) as node:
        seen = node.run(program)
        expect("all well" in seen.out and not seen.err, f"it said: {seen.out}{seen.err}")
