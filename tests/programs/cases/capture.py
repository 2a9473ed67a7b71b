# SPDX-License-Identifier: BSD-2-Clause
"""`verbena capture`: what real programs do, as RoCE v2 packets, read by tshark and by a parser of our own."""

import contextlib
import os
import pwd
import signal
import subprocess
import time

from cases.pingpong import check
from cases.rdma_cm import finish, wait_for
from harness import packets, ports
from harness.failure import Skip, expect
from harness.pair import run_pair
from harness.perftest import HARMLESS
from harness.processes import Node
from harness.registry import case


@contextlib.contextmanager
def capturing(node, *options, file="packets.pcapng"):
    """Captures what runs in the block. Yields the list that has the Capture afterwards."""
    path = os.path.join(node.folder, file)
    program = node.start_beside(node.settings.verbena, "capture", *node.options, "-w", path, *options,
                                name="verbena capture")
    program.wait_for_lines("capturing on", 1, node.settings.patience, lambda: program.err)
    found = []
    yield found
    program.signal(signal.SIGINT)
    node.ended(program)
    seen = packets.read(path)
    expect(seen.dropped == 0 and seen.received == len(seen.packets),
           f"statistics: {seen.received} received, {seen.dropped} dropped; packets: {len(seen.packets)}")
    packets.check_by_tshark(path, len(seen.packets))
    found.append(seen)


@case("capture.raw_frames", quick=True, processors=1)
def raw_frames(settings):
    """Ethernet frames of a raw packet queue pair, as they are."""
    if os.geteuid() != 0:
        raise Skip("raw packet queue pairs need CAP_NET_RAW")
    arp = bytes.fromhex("ffffffffffff 020000000001 0806 0001 0800 06 04 0001 020000000001 0a000001 000000000000 0a000002")
    frames = [arp + bytes(18), bytes.fromhex("020000000002 020000000001 88b5") + bytes(range(256)) * 5]
    with Node(settings) as node:
        path = os.path.join(node.folder, "frames.pcapng")
        sending = (*script("raw_frames.py"), *(frame.hex() for frame in frames))
        for options, kept in ((), 2000), (("-s", 64), 64):
            done = node.ended(node.start_beside(settings.verbena, "capture", *node.options, "-w", path, *options, "--",
                                                *sending, name="verbena capture"))
            expect("done" in done.out, f"the script did not reach its end: {done.out}{done.err}")
            seen = packets.read(path, lambda _, frame, length: (frame, length)).packets
            expect(seen == [(frame[:kept], len(frame)) for frame in frames], f"the frames were {seen}")


def acknowledgements(seen):
    return [packet for packet in seen.packets if packet.operation == packets.ACKNOWLEDGE]


def script(name):
    return "/usr/bin/python3", os.path.join(os.path.dirname(os.path.dirname(__file__)), name)


@case("capture.rc_pingpong", quick=True)
def rc_pingpong(settings):
    size, rounds = 3000, 20
    with Node(settings) as node:
        with capturing(node) as found:
            for side in run_pair(node, "ibv_rc_pingpong", both=("-g", 1, "-s", size, "-n", rounds, "-c", "-m", 1024)):
                check(side, size, rounds)
        seen = found[0]
        expect(seen.interface == "verbena0", f"the interface is {seen.interface}")
        sent = packets.messages(seen.packets)
        expect(len(sent) == 2 * rounds, f"{len(sent)} messages")
        expect(all(len(data) == size for _, data in sent), "a message has another length")
        expect([p.operation for p in seen.packets[:4]] == [0x00, 0x01, 0x02, packets.ACKNOWLEDGE],
               f"the packets of the first message: {seen.packets[:4]}")
        replies = acknowledgements(seen)
        expect(len(replies) == len(sent) and all(p.aeth[0] == 0x1F for p in replies), "one ACK for each message")
        numbers = [p.aeth[1] for p in replies if p.qpn == replies[0].qpn]
        expect(numbers == list(range(1, rounds + 1)), f"MSNs: {numbers}")


@case("capture.operations", quick=True, processors=1)
def operations(settings):
    """Each operation of RC, and its bytes."""
    with Node(settings) as node:
        with capturing(node) as found:
            expect("done" in node.run(*script("rc_loopback.py")).out, "the script did not reach its end")
        seen = found[0]
        sent = [data for _, data in packets.messages(seen.packets)]
        expect(sent == [b"a message", b"a write  "], f"the messages were {sent}")
        expect([p.operation for p in seen.packets] == [0x04, 0x11, 0x0A, 0x11, 0x0C, 0x10, 0x14, 0x12, 0x13, 0x12],
               f"the packets were {seen.packets}")
        read = [p for p in seen.packets if p.operation == 0x10]
        expect(read[0].payload == b"a read   ", f"the READ brought {read[0].payload}")
        add, added, swap, swapped = seen.packets[6:]
        expect(add.atomic[2] == 2 and added.atomic == (40,), f"FETCH_AND_ADD: {add.atomic}, {added.atomic}")
        expect(swap.atomic[2:] == (1, 42) and swapped.atomic == (42,), f"CMP_AND_SWP: {swap.atomic}, {swapped.atomic}")


@case("capture.refusals", quick=True, processors=1)
def refusals(settings):
    """RNR NAKs no faster than the timer allows, and the NAK of a key that there is not."""
    with Node(settings) as node:
        with capturing(node) as found:
            expect("done" in node.run(*script("rc_refusals.py")).out, "the script did not reach its end")
        seen = found[0].packets
        naks = [packet for packet in seen if packet.aeth and packet.aeth[0] >> 5 == 1]
        expect(1 <= len(naks) <= 80 and all(packet.aeth[0] == 0x20 | 12 for packet in naks),
               f"{len(naks)} RNR NAKs in 50 ms, with a timer of 0.64 ms")
        early, last = seen[:2 * len(naks)], seen[2 * len(naks):]
        expect([p.operation for p in early] == [0x04, 0x11] * len(naks), "each NAK follows its request")
        expect([p.operation for p in last] == [0x04, 0x11, 0x0A, 0x11], f"the packets at the end: {last}")
        expect(len({p.psn for p in early} | {p.psn for p in last[:2]}) == 1, "the SEND keeps its PSN")
        expect(all(p.payload == b"too early" for p in seen if p.operation == 0x04), "each SEND has its bytes")
        expect(last[1].aeth[0] == 0x1F and last[3].aeth[0] == 0x60 | 2, f"the replies: {last[1].aeth}, {last[3].aeth}")
        expect(last[3].psn == last[2].psn, "the NAK names the request")


def perftest(settings, program, options, check_seen, run_options=()):
    with Node(settings, run_options) as node:
        with capturing(node) as found:
            run_pair(node, program, both=("-x", 1, "-F", *options), harmless=HARMLESS)
        check_seen(found[0].packets)


def operations_of(seen):
    return {packet.operation for packet in seen}


@case("capture.ib_send_bw", quick=True)
def send_bw(settings):
    def check_seen(seen):
        sent = packets.messages(seen)
        expect(len(sent) == 200 and {len(data) for _, data in sent} == {10000}, f"{len(sent)} SENDs")
        expect(operations_of(seen) == {0x00, 0x01, 0x02, 0x11}, f"operations: {operations_of(seen)}")

    perftest(settings, "ib_send_bw", ("-s", 10000, "-n", 200, "-m", 4096), check_seen)


@case("capture.ib_write_bw")
def write_bw(settings):
    """Messages that are moved in several pieces."""
    size = 3 << 20

    def check_seen(seen):
        sent = packets.messages(seen)
        expect(len(sent) == 5 and {len(data) for _, data in sent} == {size}, f"{len(sent)} WRITEs")
        expect(all(first.reth[2] == size for first, _ in sent), "the RETH has the length of the message")

    perftest(settings, "ib_write_bw", ("-s", size, "-n", 5, "-m", 1024), check_seen)


@case("capture.ib_read_lat")
def read_lat(settings):
    def check_seen(seen):
        packets.messages(seen)
        asked = [packet for packet in seen if packet.operation == packets.READ_REQUEST]
        expect(len(asked) == 100 and all(packet.reth[2] == 5000 for packet in asked), f"{len(asked)} READs")
        for request in asked[:10]:
            at = seen.index(request)
            expect([p.operation for p in seen[at + 1:at + 6]] == [0x0D, 0x0E, 0x0E, 0x0E, 0x0F], "the response")
            expect([p.psn for p in seen[at + 1:at + 6]] == [(request.psn + i) & 0xFFFFFF for i in range(5)], "its PSNs")
            expect(sum(len(p.payload) for p in seen[at + 1:at + 6]) == 5000, "its bytes")

    perftest(settings, "ib_read_lat", ("-s", 5000, "-n", 100, "-m", 1024), check_seen)


@case("capture.ib_atomic_lat")
def atomic_lat(settings):
    def check_seen(seen):
        added = [packet for packet in seen if packet.operation == 0x14]
        before = [packet.atomic[0] for packet in seen if packet.operation == packets.ATOMIC_ACKNOWLEDGE]
        expect(len(added) == len(before) == 100, f"{len(added)} FETCH_AND_ADDs, {len(before)} answers")
        step = added[0].atomic[2]
        expect(before == [before[0] + i * step for i in range(100)], f"values before: {before[:5]}")

    perftest(settings, "ib_atomic_lat", ("-A", "FETCH_AND_ADD", "-n", 100), check_seen)


@case("capture.ud_pingpong", quick=True)
def ud_pingpong(settings):
    with Node(settings) as node:
        with capturing(node) as found:
            run_pair(node, "ibv_ud_pingpong", both=("-g", 1, "-s", 1000, "-n", 30))
        seen = found[0].packets
        expect(len(seen) == 60 and operations_of(seen) == {0x04}, f"{len(seen)} datagrams")
        expect(all(p.transport == packets.UD and p.deth[0] == 0x11111111 and len(p.payload) == 1000 for p in seen),
               "each has its DETH")


@case("capture.uc_pingpong")
def uc_pingpong(settings):
    with Node(settings) as node:
        with capturing(node) as found:
            run_pair(node, "ibv_uc_pingpong", both=("-g", 1, "-s", 3000, "-n", 30))
        seen = found[0].packets
        expect({p.transport for p in seen} == {packets.UC} and not any(p.is_reply() for p in seen), "UC alone")
        expect(len(packets.messages(seen)) == 60, "each message is there")


@case("capture.xrc_pingpong")
def xrc_pingpong(settings):
    with Node(settings) as node:
        with capturing(node) as found:
            run_pair(node, "ibv_xsrq_pingpong", both=("-g", 1, "-n", 30))
        seen = found[0].packets
        requests = [packet for packet in seen if not packet.is_reply()]
        expect({p.transport for p in seen} == {packets.XRC} and len(requests) >= 60, f"{len(requests)} requests")
        expect(all(packet.srqn != 0 for packet in requests), "each names its SRQ")


def attribute(mad):
    return int.from_bytes(mad[16:18], "big")


def management(settings, program, server=(), client=(), both=()):
    """The kinds of the connection manager's messages between two ends, in order, and all packets."""
    with Node(settings) as node:
        with capturing(node) as found:
            there = node.start(program, *server, *both, name=f"{program} (server)")
            wait_for(node, "listeners")
            here = node.start(program, *client, *both, name=f"{program} (client)")
            finish(node, here, there)
    seen = found[0].packets
    mads = [packet for packet in seen if packet.transport == packets.UD]
    expect(all(p.qpn == 1 and p.deth == (0x80010000, 1) and len(p.payload) == 256 for p in mads), "MADs of QP 1")
    return [attribute(packet.payload) for packet in mads], seen


@case("capture.rping")
def rping(settings):
    """The connection manager's messages, and what they lead to."""
    kinds, seen = management(settings, "rping", ("-s",), ("-c",), ("-a", "127.0.0.1", "-C", 5, "-v"))
    # Neither end of rping waits for the other: both may say DREQ, and end before they read the other's. Then there is no
    # DREP.
    expect(kinds[:3] == [0x10, 0x13, 0x14] and kinds[3:4] == [0x15] and set(kinds[3:]) <= {0x15, 0x16},
           f"REQ, REP, RTU, DREQ, and perhaps DREP; seen: {[hex(kind) for kind in kinds]}")
    expect({0x04, 0x0A, 0x0C} <= operations_of(seen), f"SEND, WRITE and READ: {operations_of(seen)}")


@case("capture.ucmatose")
def ucmatose(settings):
    """A connection from REQ to DREP: both ends wait for DISCONNECTED."""
    kinds, seen = management(settings, "ucmatose", client=("-s", "127.0.0.1"))
    expect(kinds[:3] == [0x10, 0x13, 0x14] and kinds[3:4] == [0x15] and set(kinds[3:]) == {0x15, 0x16},
           f"REQ, REP, RTU, DREQ and DREP; seen: {[hex(kind) for kind in kinds]}")
    expect(0x04 in operations_of(seen), f"SEND: {operations_of(seen)}")


@case("capture.two_nodes")
def two_nodes(settings):
    """Each node sees the same packets, though none of them was one: requests short and long, and READs."""
    with Node(settings) as node:
        port = ports.reserve()
        ends = [("--ip", f"127.0.0.{number}", "--port", port) for number in (2, 3)]

        def on(end):
            node.options = list(ends[end])
            return node

        def run(program, *options):
            there = ports.reserve()
            server = on(0).start(program, "-p", there, *options, name=f"{program} (server)")
            ports.wait_listening(there, server, settings.patience)
            client = on(1).start(program, "-p", there, *options, "127.0.0.1", name=f"{program} (client)")
            for side in (client, server):
                node.ended(side)

        with capturing(on(0), file="server.pcapng") as server_saw, capturing(on(1), file="client.pcapng") as client_saw:
            run("ibv_rc_pingpong", "-g", 1, "-s", 100, "-n", 10)
            run("ibv_rc_pingpong", "-g", 1, "-s", 3000000, "-n", 2)
            run("ib_read_lat", "-x", 1, "-F", "-s", 100000, "-n", 5)
        seen = [sorted((p.source, p.qpn, p.operation, p.psn, p.payload) for p in found[0].packets)
                for found in (server_saw, client_saw)]
        expect(len(seen[0]) > 10000, f"{len(seen[0])} packets")
        expect(all(p.is_whole for found in (server_saw, client_saw) for p in found[0].packets), "each with its payload")
        expect(seen[0] == seen[1], f"the nodes see {len(seen[0])} and {len(seen[1])} packets")


def requests_out(node):
    return sum(qp["requests_out"] for process in node.processes() for qp in process["qps"])


@case("capture.attached_later")
def attached_later(settings):
    """A program that runs already is captured from then on, and goes on as before when the capture ends."""
    with Node(settings) as node:
        port = ports.reserve()
        options = ("-p", port, "-g", 1, "-s", 64, "-n", 100000000)
        server = node.start("ibv_rc_pingpong", *options, name="ibv_rc_pingpong (server)")
        ports.wait_listening(port, server, settings.patience)
        client = node.start("ibv_rc_pingpong", *options, "127.0.0.1", name="ibv_rc_pingpong (client)")
        until = time.monotonic() + settings.patience
        while requests_out(node) == 0:
            expect(time.monotonic() < until, "the client does not begin")
        taken = node.start_beside(settings.verbena, "capture", "-c", 100, name="verbena capture")
        node.ended(taken)
        lines = taken.out.splitlines()
        expect(len(lines) == 100 and all(" RC " in line for line in lines), f"{len(lines)} lines of text")
        before = requests_out(node)
        while requests_out(node) < before + 100:
            expect(time.monotonic() < until, "the programs do not go on")
        for side in (client, server):
            side.signal(signal.SIGKILL)
            node.ended(side, -signal.SIGKILL)


@case("capture.snaplen")
def snaplen(settings):
    with Node(settings) as node:
        with capturing(node, "-s", 100) as found:
            run_pair(node, "ibv_rc_pingpong", both=("-g", 1, "-s", 3000, "-n", 5, "-m", 1024))
        seen = found[0].packets
        expect(len(seen) == 40 and [p.is_whole for p in seen[:4]] == [False, False, False, True], f"{len(seen)} packets")
        rings = [file for folder, _, files in os.walk(node.folder) if folder.endswith("/records") for file in files]
        expect(not rings, f"rings are left: {rings}")


@case("capture.program", processors=1)
def program(settings):
    """A program of its own: its exit status, and the pipe to a reader."""
    with Node(settings) as node:
        command = f"{settings.verbena} capture -w - -- {' '.join(script('rc_loopback.py'))} > {node.folder}/out"
        node.ended(node.start_beside("sh", "-c", command, name="verbena capture"))
        expect(len(packets.read(f"{node.folder}/out").packets) == 10, "ten packets")
        ended = node.start_beside(settings.verbena, "capture", "-w", f"{node.folder}/out", "--", "sh", "-c", "exit 7",
                                  name="verbena capture")
        node.ended(ended, status=7)


@case("capture.program_ended", processors=1)
def program_ended(settings):
    """--seconds and -c end a capture, and its program with it; a program that minds SIGTERM has its own exit status."""
    def capture(*options, status=0):
        return node.ended(node.start_beside(settings.verbena, "capture", *options, name="verbena capture"), status)

    with Node(settings) as node:
        capture("--seconds", 0.1, "--", "sleep", 1000)
        traffic = f"{' '.join(script('rc_loopback.py'))} >&2; exec sleep 1000"
        lines = capture("-c", 10, "--", "sh", "-c", traffic).out.splitlines()
        expect(len(lines) == 10 and all(" RC " in line for line in lines), f"{len(lines)} lines of text")
        path = f"{node.folder}/packets.pcapng"
        capture("-w", path, "--seconds", 0.3, "--", "sleep", 1000)
        expect(packets.read(path).packets == [], "the file is complete, and empty")
        # The packet that ends it comes after the trap.
        minds = f"trap 'exit 7' TERM; {' '.join(script('rc_loopback.py'))} >&2; while :; do sleep 0.01; done"
        capture("-w", path, "-c", 1, "--", "sh", "-c", minds, status=7)
        expect(len(packets.read(path).packets) == 1, "the file has one packet")
        capture("--seconds", 1000, "--", "sh", "-c", "exit 7", status=7)


def unprivileged(settings):
    """A command that becomes a user for whom tshark takes plugins from another folder: not root."""
    if os.getuid() != 0:
        return (), None
    nobody = pwd.getpwnam("nobody")
    become = ("setpriv", f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups")
    if subprocess.run([*become, "test", "-x", settings.verbena], check=False).returncode != 0:
        raise Skip("root, and the build folder is for root alone")
    return become, nobody


@case("capture.extcap", processors=1)
def extcap(settings):
    """Wireshark's plugin: tshark lists the device, and captures by it."""
    become, user = unprivileged(settings)
    with Node(settings, as_user=become) as node:
        folder = os.path.join(node.folder, "extcap")
        os.mkdir(folder)
        os.symlink(os.path.join(settings.build, "share", "verbena", "extcap", "verbena"), os.path.join(folder, "verbena"))
        if user is not None:
            node.give_to(user.pw_uid, user.pw_gid)
        more = {"WIRESHARK_EXTCAP_DIR": folder, "HOME": node.folder, "TMPDIR": node.folder}
        listed = node.ended(node.start_beside("tshark", "-D", name="tshark -D", more=more))
        expect("verbena0 (Verbena RDMA adapter)" in listed.out, f"tshark lists: {listed.out}")
        path = os.path.join(node.folder, "by_tshark.pcapng")
        reader = node.start_beside("tshark", "-i", "verbena0", "-w", path, "-c", 10, name="tshark -i verbena0", more=more)
        until = time.monotonic() + settings.patience
        while reader.poll() is None and time.monotonic() < until:
            node.run(*script("rc_loopback.py"))
        node.ended(reader)
        expect(len(packets.read(path).packets) >= 10, "ten packets")
