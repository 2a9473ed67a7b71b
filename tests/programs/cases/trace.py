# SPDX-License-Identifier: BSD-2-Clause
"""`verbena trace`: what programs do, as JSON for Perfetto and as text."""

import json
import os
import shutil
import signal
import time

from cases.capture import script
from cases.rdma_cm import finish, wait_for
from harness import ports
from harness.failure import expect
from harness.pair import run_pair
from harness.processes import Node
from harness.registry import case


def trace(node, *options, status=0):
    program = node.start_beside(node.settings.verbena, "trace", *node.options, *options, name="verbena trace")
    return node.ended(program, status)


def events_in(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)["traceEvents"]


def arrows(events):
    """(process of the SEND, process of the receive) by number; each arrow begins and ends on a bar."""
    bars = {(e["pid"], e["tid"], e["ts"]) for e in events if e["ph"] == "X"}
    ends = {}
    for event in events:
        if event["ph"] in "sf":
            expect((event["pid"], event["tid"], event["ts"]) in bars, f"no bar at {event}")
            ends.setdefault(event["id"], {})[event["ph"]] = event["pid"]
    return [(end["s"], end["f"]) for end in ends.values() if len(end) == 2]


def rows_do_not_overlap(events):
    last = {}
    for event in sorted((e for e in events if e["ph"] == "X" and e["tid"] >= 1 << 32), key=lambda e: e["ts"]):
        row = event["pid"], event["tid"]
        expect(event["ts"] >= last.get(row, 0) - 0.002, f"{event} begins before {last.get(row)}")
        last[row] = event["ts"] + event["dur"]


@case("trace.program", quick=True, processors=1)
def program(settings):
    with Node(settings) as node:
        path = os.path.join(node.folder, "trace.json")
        trace(node, "-o", path, "--", *script("rc_loopback.py"))
        events = events_in(path)
        requests = [e["name"] for e in events if e["ph"] == "X" and e["tid"] >= 1 << 32 and e["tid"] % 2 == 0]
        expect(requests == ["SEND 9", "RDMA_WRITE 9", "RDMA_READ 9", "ATOMIC_FETCH_AND_ADD 8", "ATOMIC_CMP_AND_SWP 8"],
               f"the requests: {requests}")
        expect(len(arrows(events)) == 1, f"one SEND, and its receive: {arrows(events)}")
        said = "\n".join(e["args"]["what"] for e in events if e["ph"] == "X")
        for what in ("post SEND, 9 bytes, wr_id 0x7", "post RECV, 4096 bytes, wr_id 0x9", "poll RECV, 9 bytes, wr_id 0x9",
                     "RTR to RTS"):
            expect(what in said, f"'{what}' is missing in {said}")
        rows_do_not_overlap(events)
        # The first request is lost, and the acknowledgement of the second one.
        faults = os.path.join(node.folder, "faults.toml")
        with open(faults, "w", encoding="utf-8") as file:
            file.write('[[fault]]\nwhat = "lose"\nnth = 1\n[[fault]]\nwhat = "lose_ack"\nopcode = "RDMA_WRITE"\nnth = 1\n')
        lines = trace(node, "--text", "-o", "-", "--", settings.verbena, "run", "--faults", faults, "--",
                      *script("rc_loopback.py")).out.splitlines()
        again = [line.split(": ", 2)[2] for line in lines if " is to be sent again" in line]
        expect([line.split(":")[0] for line in again] == ["SEND is to be sent again", "RDMA_WRITE is to be sent again"]
               and all("peer_silent, 9 bytes" in line for line in again), f"what is sent again: {again}")
        ended = trace(node, "--text", "-o", "-", "--", "sh", "-c", "exit 7", status=7)
        expect(ended.out == "", f"text of nothing: {ended.out}")


@case("trace.two_processes", quick=True)
def two_processes(settings):
    with Node(settings) as node:
        path = os.path.join(node.folder, "trace.json")
        trace(node, "--start")
        run_pair(node, "ibv_rc_pingpong", both=("-g", 1, "-s", 64, "-n", 50))
        trace(node, "--dump", "-o", path, "--stop")
        events = events_in(path)
        found = arrows(events)
        expect(len(found) == 100 and all(sender != receiver for sender, receiver in found), f"{len(found)} arrows")
        expect({e["args"]["name"] for e in events if e.get("name") == "process_name"} == {"ibv_rc_pingpong"}, "names")
        rows_do_not_overlap(events)
        expect(trace(node, "--text", "--dump", "-o", "-").out == "", "after --stop there is nothing")


@case("trace.killed")
def killed(settings):
    """What a process has done is there after it was killed."""
    with Node(settings) as node:
        trace(node, "--start", "--ring", 1)
        port = ports.reserve()
        options = ("-p", port, "-g", 1, "-s", 64, "-n", 100000000)
        server = node.start("ibv_rc_pingpong", *options, name="ibv_rc_pingpong (server)")
        ports.wait_listening(port, server, settings.patience)
        client = node.start("ibv_rc_pingpong", *options, "127.0.0.1", name="ibv_rc_pingpong (client)")
        until = time.monotonic() + settings.patience
        while sum(qp["requests_out"] for process in node.processes() for qp in process["qps"]) < 1000:
            expect(time.monotonic() < until, "the client does not begin")
        for side in (client, server):
            side.signal(signal.SIGKILL)
            node.ended(side, -signal.SIGKILL)
        lines = trace(node, "--dump", "--text", "-o", "-", "--last", 60).out.splitlines()
        for pid in (client.pid, server.pid):
            expect(any(f"ibv_rc_pingpong[{pid}]" in line for line in lines), f"nothing of {pid} in {lines[:10]}")
        expect(any("SEND of 64 bytes to QP" in line for line in lines), f"no SEND in {lines[:10]}")
        last = trace(node, "--dump", "--text", "-o", "-", "--last", 0.0001).out.splitlines()
        expect(0 < len(last) < len(lines) and last[-1].split()[1:] == lines[-1].split()[1:], f"{len(last)} of {len(lines)} lines")
        trace(node, "--stop")


@case("trace.management")
def management(settings):
    """Arrows lead through a connection: REQ, REP, RTU; DREQ, DREP."""
    with Node(settings) as node:
        path = os.path.join(node.folder, "trace.json")
        trace(node, "--start")
        server = node.start("ucmatose", name="ucmatose (server)")
        wait_for(node, "listeners")
        finish(node, node.start("ucmatose", "-s", "127.0.0.1", name="ucmatose (client)"), server)
        trace(node, "--dump", "-o", path, "--stop")
        events = events_in(path)
        bars = {(e["pid"], e["tid"], e["ts"]): e["name"] for e in events if e["ph"] == "X" and " is sent" in e["name"]}
        arrow = {}
        for event in events:
            at = event["pid"], event["tid"], event.get("ts")
            if event["ph"] in "sf" and at in bars:
                arrow.setdefault(event["id"], []).append((event["pid"], bars[at].split()[0]))
        ends = [(a[1], b[1]) for a, b in arrow.values() if a[0] != b[0]]
        expect(ends[:2] == [("REQ", "REP"), ("REP", "RTU")] and ("DREQ", "DREP") in ends, f"the arrows: {ends}")


@case("trace.probes", processors=1)
def probes(settings):
    """A tool finds the probes of the provider, raises their semaphores, and reads their arguments."""
    expect(shutil.which("gdb") is not None, "gdb is not installed")
    asked = ["-ex", "set breakpoint pending on"]
    for name in ("post_recv", "post_send", "completion"):
        asked += ["-ex", f"break -probe-stap verbena:{name}"]
    asked += ["-ex", "run"]
    arguments = {"post_recv": (2, 3), "post_send": (2, 3, 4), "completion": (2, 3, 4, 5)}
    for name, places in arguments.items():
        values = ", ".join(f"$_probe_arg{place - 1}" for place in places)
        asked += ["-ex", f'printf "{name}{" %d" * len(places)}\\n", {values}', "-ex", "continue"]
    with Node(settings) as node:
        seen = node.ended(node.start("gdb", "-batch", "-readnever", *asked, "-ex", "kill", "--args", *script("rc_loopback.py")))
        # wr_id and number of SGEs; IBV_WR_SEND between them; then IBV_WC_SUCCESS, IBV_WC_SEND and 9 bytes.
        for line in ("post_recv 9 1", "post_send 7 2 1", "completion 7 0 0 "):
            expect(any(found.startswith(line) for found in seen.out.splitlines()), f"'{line}' is not in {seen.out}")
