# SPDX-License-Identifier: BSD-2-Clause
"""Programs that find each other through rdma_cm: those of rdmacm-utils, perftest with -R, qperf."""

import dataclasses
import os
import re
import shutil
import signal
import time

from cases.perftest import UNCALIBRATED, default_sizes, kind
from harness import ports
from harness.failure import Skip, expect
from harness.pair import TROUBLE
from harness.perftest import HARMLESS, check_table
from harness.processes import Node
from harness.registry import add, case

ADDRESS = "127.0.0.1"
INFINIBAND = ("--link-layer", "infiniband")


def wait_for(node, what, count=1):
    program = os.path.join(node.settings.build, "bin", "programs_wait_for")
    node.run(program, what, count, int(node.settings.patience), name=f"wait_for {count} {what}")


# rping of rdma-core 44 closes its channel at the end, after everything else, while its other thread may be about to ask
# for the next event, which then fails and ends the program (later versions wait for it: examples/rping.c, main()). The
# descriptor's number may belong to another file by then: with an adapter, too, the request would be written there.
CLOSED_TOO_EARLY = re.compile(r"(client DISCONNECT EVENT\.\.\.\n|server DISCONNECT EVENT\.\.\.\nwait for RDMA_READ_ADV state 10\n)?"
                              r"rdma_get_cm_event: (Bad file descriptor|Is a directory|Invalid argument)\n")
# What the device logs about it: between nodes the other end's process may have ended before the connection did, and the
# channel may be closed during the command that asks for the next event.
OF_THE_DEVICE = re.compile(r"^verbena\[\d+\] warn: (no connection to \S+: nobody listens at the port|"
                           r"rdma_cm: command GET_EVENT: errno 9) \[\w+\]\n|^verbena: RoCE v2 has no authentication: .*\n",
                           re.MULTILINE)


def ended_well(program, status):
    return status == 0 or (program.name.startswith("rping") and status == 255 and
                           CLOSED_TOO_EARLY.fullmatch(OF_THE_DEVICE.sub("", program.err)) is not None)


def finish(node, *programs):
    for program in programs:
        seen = program.wait(node.settings.patience)
        expect(ended_well(program, seen), f"{program.name} ended with status {seen}")
        said = TROUBLE.search(program.out)
        expect(said is None, f"{program.name} speaks of trouble: '{said and said.group(0)}'")


def installed(program):
    if shutil.which(program) is None:
        raise Skip(f"{program} is not installed")


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    server: tuple
    client: tuple
    says: str = ""  # what the client prints
    server_ends: bool = True
    run_options: tuple = ()
    quick: bool = False


def run_row(settings, row):
    installed(row.server[0])
    with Node(settings, row.run_options) as node:
        server = node.start(*row.server, name=f"{row.server[0]} (server)")
        wait_for(node, "listeners")
        client = node.start(*row.client, name=f"{row.client[0]} (client)")
        finish(node, client)
        expect(row.says in client.out, f"{client.name} did not say '{row.says}'")
        if row.server_ends:
            finish(node, server)


def both(name, program, options=(), server=(), client=("-s", ADDRESS), **more):
    return Row(f"{program}.{name}", (program, *options, *server), (program, *options, *client), **more)


RPING = {"server": ("-s", "-a", ADDRESS), "client": ("-c", "-a", ADDRESS)}
COUNTED = ("-C", "20", "-v")
STATUS = {"says": "return status 0"}
RSTREAM = ("-C", "100", "-I", "2")
ROWS = [
    both("plain", "rping", COUNTED, **RPING, says="ping data: rdma-ping-19", quick=True),
    both("verified", "rping", (*COUNTED, "-V"), **RPING, says="ping data: rdma-ping-19", quick=True),
    both("large", "rping", (*COUNTED, "-V", "-S", "60000"), **RPING, says="ping data: rdma-ping-19"),
    both("port", "rping", (*COUNTED, "-p", "9999"), **RPING, says="ping data: rdma-ping-19"),
    both("ipv6", "rping", COUNTED, server=("-s", "-a", "::1"), client=("-c", "-a", "::1"), says="rdma-ping-19"),
    both("infiniband", "rping", COUNTED, **RPING, says="rdma-ping-19", run_options=INFINIBAND),
    both("two_ports", "rping", COUNTED, **RPING, says="rdma-ping-19", run_options=("--ports", "2")),
    both("self_bringup", "rping", (*COUNTED, "-q"), **RPING, says="rdma-ping-19"),
    both("plain", "ucmatose", **STATUS, quick=True),
    both("connections_50", "ucmatose", ("-c", "50", "-C", "20"), **STATUS),
    both("large", "ucmatose", ("-S", "100000"), **STATUS),
    both("migrated", "ucmatose", ("-m", "-c", "5"), **STATUS),
    both("plain", "udaddy", **STATUS, quick=True),
    both("connections_10", "udaddy", ("-c", "10", "-C", "20"), **STATUS),
    both("infiniband", "udaddy", **STATUS, run_options=INFINIBAND),
    both("ipoib_port_space", "udaddy", ("-p", "0x0002"), **STATUS, run_options=INFINIBAND),
    Row("rdma_client.plain", ("rdma_server",), ("rdma_client", "-s", ADDRESS), "rdma_client: end 0", quick=True),
    Row("rdma_xclient.rc", ("rdma_xserver", "-c", "r"), ("rdma_xclient", "-s", ADDRESS, "-c", "r"), "rdma_xclient: end 0",
        quick=True),
    Row("rdma_xclient.xrc", ("rdma_xserver", "-c", "x"), ("rdma_xclient", "-s", ADDRESS, "-c", "x"), "rdma_xclient: end 0",
        quick=True),
    both("connections_1000", "cmtime", client=("-s", ADDRESS, "-c", "1000"), says="destroy", server_ends=False),
    both("bound", "cmtime", client=("-s", ADDRESS, "-b", ADDRESS, "-c", "50"), says="bind addr", server_ends=False),
    # The sizes that it measures by default, 64 B to 1 MiB: 111,100 round trips. Blocking, because two programs that
    # poll (its default, which works as well) take minutes for them on a busy machine.
    both("its_own_sizes", "rstream", ("-T", "b"), says="1m_bw"),
    both("size_64K", "rstream", ("-S", "65536", *RSTREAM), quick=True),
    both("nonblocking", "rstream", ("-S", "1000", *RSTREAM, "-T", "n")),
    both("blocking", "rstream", ("-S", "1000", *RSTREAM, "-T", "b")),
    # Not -T a: the server closes after its last byte, and rstream's client takes POLLHUP beside POLLIN for a failure
    # when both are there at its last poll (examples/common.c, do_poll). tests/rsockets polls instead.
    both("verified", "rstream", ("-S", "10000", *RSTREAM, "-T", "v")),
    both("resolved", "rstream", ("-S", "1000", *RSTREAM, "-T", "r")),
    both("size_64K", "riostream", ("-S", "65536", *RSTREAM), quick=True),
    both("verified", "riostream", ("-S", "10000", *RSTREAM, "-T", "v")),
]
for each in ROWS:
    add(each.name, lambda settings, r=each: run_row(settings, r), each.quick)


def by_gid(settings, run_options, server, client, says):
    """AF_IB: addresses are GIDs, no IP is in the way (-f gid). GID 0 is the device's on every node."""
    with Node(settings, run_options) as node:
        gid = node.run("cat", "/sys/class/infiniband/verbena0/ports/1/gids/0", name="GID 0").out.strip()
        run_row(settings, Row("", (*server, "-f", "gid", "-b", gid), (*client, "-f", "gid", "-s", gid), says,
                              run_options=run_options))


for layer, link in (("", ()), ("_infiniband", INFINIBAND)):
    add(f"ucmatose.gid{layer}",
        lambda settings, o=link: by_gid(settings, o, ("ucmatose",), ("ucmatose",), "return status 0"))
add("rstream.gid", lambda settings: by_gid(settings, (), ("rstream", "-S", "1000", *RSTREAM),
                                           ("rstream", "-S", "1000", *RSTREAM), ""), quick=True)


@case("rping.many_clients", quick=True)
def many_clients(settings):
    """A persistent server (-P) serves several at once, and one after them.

    They come one by one: its main thread takes a request's id from where its event thread has put it (rping.c,
    child_cm_id), and it forgets the first of two requests that come too fast.
    """
    with Node(settings) as node:
        server = node.start("rping", "-s", "-a", ADDRESS, "-P", name="rping (server)")
        wait_for(node, "listeners")
        clients = []
        for i in range(8):
            clients.append(node.start("rping", "-c", "-a", ADDRESS, "-C", 200, "-V", "-v", name=f"rping (client {i})"))
            clients[-1].wait_for_output("ping data", settings.patience)
        finish(node, *clients)
        expect(server.poll() is None, "the persistent server has ended")
        finish(node, node.start("rping", "-c", "-a", ADDRESS, "-C", 5, "-V", name="rping (last client)"))


@case("rping.nobody_listens", processors=1)
def nobody_listens(settings):
    with Node(settings) as node:
        client = node.start("rping", "-c", "-a", ADDRESS, "-C", 1)
        expect(client.wait(settings.patience) != 0, "rping connected to nobody")
        expect("RDMA_CM_EVENT_REJECTED" in client.err, "rping was not rejected")


def expect_failure_after(program, seconds, event, settings):
    """The test's clock starts late and stops late: the failure does not come early, and not much later."""
    began = time.monotonic()
    expect(program.wait(seconds + settings.patience) != 0, f"{program.name} succeeded")
    took = time.monotonic() - began
    expect(event in program.err, f"{program.name} did not see {event}")
    in_time = seconds - 1 < took < seconds + settings.patience / 5
    expect(in_time, f"{event} came after {took:.1f} s, not {seconds:.1f} s")


@case("rping.address_of_nobody", processors=1)
def address_of_nobody(settings):
    """rping gives the address 2 s (examples/rping.c, rdma_resolve_addr); -110 is ETIMEDOUT."""
    with Node(settings) as node:
        client = node.start("rping", "-c", "-a", "203.0.113.7", "-I", ADDRESS, "-C", 1)
        expect_failure_after(client, 2, "RDMA_CM_EVENT_ADDR_ERROR, error -110", settings)


@case("rping.server_stopped", processors=1)
def server_stopped(settings):
    """A request is sent 16 times (CMA_MAX_CM_RETRIES). The time for an answer is twice the packet life time of RoCE and
    the peer's response time: 2 * 0.256 s + 4.096 s (cm.c, ib_send_cm_req; cma.c, CMA_CM_RESPONSE_TIMEOUT)."""
    with Node(settings) as node:
        server = node.start("rping", "-s", "-a", ADDRESS, "-C", 1, name="rping (server)")
        wait_for(node, "listeners")
        server.signal(signal.SIGSTOP)
        client = node.start("rping", "-c", "-a", ADDRESS, "-C", 1, name="rping (client)")
        expect_failure_after(client, 16 * (2 * 0.256 + 4.096), "RDMA_CM_EVENT_UNREACHABLE, error -110", settings)


@case("mckey.receivers_3", quick=True)
def multicast(settings, as_user=None):
    with Node(settings, as_user=as_user) as node:
        options = ("-m", "224.10.10.10", "-b", ADDRESS)
        receivers = [node.start("mckey", *options, name=f"mckey (receiver {i})") for i in range(3)]
        wait_for(node, "groups", 3)
        sender = node.start("mckey", *options, "-s", name="mckey (sender)")
        finish(node, sender, *receivers)
        for receiver in receivers:
            expect("return status 0" in receiver.out, f"{receiver.name} did not receive")


def happens(node, what):
    node.run(node.verbena, "event", "verbena0", what, name=f"verbena event {what}")


@case("mckey.device_events", processors=1)
def device_events(settings):
    """A receiver that gets the events of its device. On InfiniBand a port that goes down loses its groups."""
    with Node(settings, INFINIBAND) as node:
        receiver = node.start("stdbuf", "-oL", "mckey", "-m", "224.10.10.10", "-b", ADDRESS, name="mckey (receiver)")
        wait_for(node, "groups")
        receiver.wait_for_output("joined dgid", settings.patience)
        for what, event in (("address-change", "RDMA_CM_EVENT_ADDR_CHANGE, status: 0"),
                            ("port-down", "RDMA_CM_EVENT_MULTICAST_ERROR, status: -102")):  # -ENETRESET
            happens(node, what)
            receiver.wait_for_output(event, settings.patience)


@case("rping.device_fatal", processors=1)
def device_fatal(settings):
    with Node(settings) as node:
        server = node.start("rping", "-s", "-a", ADDRESS, "-C", 1)
        wait_for(node, "listeners")
        happens(node, "device-fatal")
        expect(server.wait(settings.patience) != 0, "rping's server ended well without its device")
        expect("cma detected device removal" in server.err, "rping was not told of the removal")


@case("rcopy.file")
def copy(settings):
    with Node(settings) as node:
        source, target = os.path.join(node.folder, "source"), os.path.join(node.folder, "target")
        with open(source, "wb") as file:
            file.write(os.urandom(3_000_001))
        node.start("rcopy", name="rcopy (server)")
        wait_for(node, "listeners")
        finish(node, node.start("rcopy", source, f"{ADDRESS}:{target}", name="rcopy (client)"))
        expect(open(source, "rb").read() == open(target, "rb").read(), "the copy differs")


def own_address(node):
    """An address of the machine that a device has. rsockets' datagrams cannot be bound to loopback: as on Linux that is
    bound to no device, and librdmacm goes on without one (rsocket.c, ds_create_qp)."""
    words = node.run("hostname", "-I", name="addresses").out.split()
    found = [word for word in words if word.count(".") == 3 and not word.startswith("127.")]
    if not found:
        raise Skip("this machine has no IPv4 address but loopback")
    return found[0]


@case("udpong.infiniband")
def datagrams_of_rsockets(settings):
    """On Ethernet rsockets' address handles have no GRH (rsocket.c, ds_add_qp_dest), which no RoCE adapter takes."""
    with Node(settings, INFINIBAND) as node:
        address = own_address(node)
        port = ports.reserve()  # rsockets' datagrams have a port of the machine's UDP, too
        server = node.start("udpong", "-b", address, "-p", port, name="udpong (server)")
        ports.wait_listening(port, server, settings.patience, udp=True)
        finish(node, node.start("udpong", "-s", address, "-p", port, "-C", 100, name="udpong (client)"))


RSPRELOAD = "/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so"


@case("rsockets.preloaded", quick=True)
def preloaded(settings):
    """A program of plain sockets (rstream -T s) over librdmacm's preload, together with ours."""
    if not os.path.exists(RSPRELOAD):
        raise Skip("librspreload.so is not installed")
    with Node(settings) as node:
        line = f"LD_PRELOAD=$LD_PRELOAD:{RSPRELOAD} exec rstream -T s -S 1000 -C 100 -I 2"
        server = node.start("sh", "-c", line, name="rstream (server)")
        wait_for(node, "listeners")
        client = node.start("sh", "-c", f"{line} -s {ADDRESS}", name="rstream (client)")
        finish(node, client, server)


# With -R perftest 4.5 connects twice. Before the second time both ends say that they are ready; only then does the
# server listen, and the client connects (perftest_communication.c: create_rdma_cm_connection,
# rdma_cm_server_connection). On a busy machine the client is sometimes faster, is rejected as it should be (no service:
# 8 of vol. 1, 12.6.7.2, or with UD IB_SIDR_UNSUPPORTED of the kernel's ib_cm.h), and ends with a segmentation fault.
# Then both are started again: with a compiler beside them five attempts in a row were seen to lose that race.
PERFTEST_RACE = ("RDMA_CM_EVENT_REJECTED; error: 8.", "RDMA_CM_EVENT_UNREACHABLE; error: 1.")
PERFTEST_ATTEMPTS = 20


def perftest_pair(start_server, start_client, patience):
    """Returns (server, client) as soon as the client has ended without that race and with a valid clock."""
    for _ in range(PERFTEST_ATTEMPTS):
        server = start_server()
        client = start_client()
        ended_well = client.wait(patience) == 0
        raced = any(refused in client.out + client.err for refused in PERFTEST_RACE)
        if UNCALIBRATED not in client.err and (ended_well or not raced):
            break
        server.kill()
    return server, client


def perftest_by_manager(settings, program, options, run_options):
    with Node(settings, run_options) as node:
        iterations = 500
        line = (program, "-R", "-F", "-n", iterations, *options)

        def start_server():
            server = node.start(*line, name=f"{program} (server)")
            wait_for(node, "listeners")
            return server
        server, client = perftest_pair(start_server, lambda: node.start(*line, ADDRESS, name=f"{program} (client)"),
                                       settings.patience)
        finish(node, client, server)
        check_table(client, kind(program), default_sizes(program, options), iterations)


# With -R perftest refuses UC, XRC and groups itself (perftest 4.5, src/perftest_parameters.c, force_dependecies).
for test in ("send", "write", "read", "atomic"):
    for figure in ("lat", "bw"):
        name = f"ib_{test}_{figure}"
        add(f"{name}.rdma_cm", lambda settings, p=name: perftest_by_manager(settings, p, (), ()), quick=figure == "lat")
        add(f"{name}.rdma_cm_infiniband", lambda settings, p=name: perftest_by_manager(settings, p, (), INFINIBAND))
for figure in ("lat", "bw"):
    name = f"ib_send_{figure}"
    add(f"{name}.rdma_cm_ud", lambda settings, p=name: perftest_by_manager(settings, p, ("-c", "UD"), ()))
for test in ("send", "write", "read", "atomic"):
    name = f"ib_{test}_bw"
    add(f"{name}.rdma_cm_qps_4", lambda settings, p=name: perftest_by_manager(settings, p, ("-q", 4, "-b"), ()))
add("ib_send_lat.rdma_cm_events", lambda settings: perftest_by_manager(settings, "ib_send_lat", ("-e",), ()))


# qperf 0.4.11's server announces its port and only then listens there (rdma.c, cm_open_server; fixed upstream since):
# the client is sometimes faster, and is rejected. It reports that at once; then it is started again.
QPERF_RACE = "unexpected event from RDMA CM: Event rejected"


def qperf(settings, test, manager, run_options):
    installed("qperf")
    with Node(settings, run_options) as node:
        port = ports.reserve()
        server = node.start("qperf", "-lp", port, name="qperf (server)")
        ports.wait_listening(port, server, settings.patience)
        for _ in range(20):
            client = node.start("qperf", "-lp", port, "-t", 1, "-cm", manager, ADDRESS, test, name="qperf (client)")
            if client.wait(settings.patience) == 0 or QPERF_RACE not in client.out + client.err:
                break
        finish(node, client)
        expect(f"{test}:" in client.out and " = " in client.out, "qperf printed no result")


# Without rdma_cm qperf addresses by LID (qperf 0.4.11, src/rdma.c: no GRH); ud_lat does so with -cm 1 too.
for test in ("rc_lat", "rc_bw", "rc_rdma_write_bw", "ud_lat"):
    link = INFINIBAND if test == "ud_lat" else ()
    add(f"qperf.{test}_rdma_cm", lambda settings, t=test, o=link: qperf(settings, t, 1, o), quick=test == "rc_lat")
    add(f"qperf.{test}", lambda settings, t=test: qperf(settings, t, 0, INFINIBAND))
