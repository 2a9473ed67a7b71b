# SPDX-License-Identifier: BSD-2-Clause
"""What a lane may draw. An activity is a function of a Lane; it raises Failure."""

import os
import re
import shutil

from cases.perftest import default_sizes, kind
from cases.rdma_cm import ended_well
from harness.failure import Skip, expect
from harness.pair import TROUBLE, no_trouble
from harness.perftest import HARMLESS, check_table
from lane import exclusive, tcp_port
from rows.flows import Flow
from rows.ledger import ENDLESS, HASTY, PATIENT, Pair
from survivors import RPING_PORT

ALL = {}
GID = ("-g", 1)  # the node's address
# Any process of a node may take a connection that asks for one which has just been killed.
ABOUT_OTHERS = (r"^verbena\[\d+\] warn: (refused|turned away|no connection to) ",)


def activity(name):
    def register(function):
        ALL[name] = function
        return function
    return register


# ---- operations that are counted at both ends ----

def ledger(lane, *timing):
    return Pair(*lane.two_hosts(), *ENDLESS, *timing, "--lines", lane.draw.choice((1, 1, 4, 20)),
                *lane.draw.choice(((), ("--both",))))


def count(lane, *reports):
    lane.counts["operations of ledgers"] += sum(report["completed"] for report in reports)


@activity("ledger")
def ledger_ends_well(lane):
    pair = ledger(lane, *PATIENT)
    lane.rest(0.1, 3)
    pair.wait_progress(1)
    count(lane, *pair.end_well())


@activity("ledger.stopped")
def ledger_stopped(lane):
    pair = ledger(lane, *PATIENT)
    for _ in range(lane.draw.randrange(1, 4)):
        lane.stop_and_continue(lane.draw.choice((pair.serve, pair.drive)), 5)
    pair.wait_progress(1)
    count(lane, *pair.end_well())


@activity("ledger.target_killed")
def ledger_target_killed(lane):
    pair = Pair(*lane.two_hosts(), *ENDLESS, *HASTY, "--lines", lane.draw.choice((1, 4, 20)))
    pair.wait_progress(1)
    lane.rest(0, 1)
    lane.kill(pair.serve)
    count(lane, pair.report(pair.drive))


@activity("ledger.initiator_killed")
def ledger_initiator_killed(lane):
    pair = Pair(*lane.two_hosts(), *ENDLESS, *PATIENT, "--lines", lane.draw.choice((1, 4, 20)))
    pair.wait_progress(1)
    lane.rest(0, 1)
    lane.kill(pair.drive)
    lane.counts["operations of ledgers"] += pair.report(pair.serve)["received"]


@activity("ledger.executes_another_program")
def ledger_executes(lane):
    pair = Pair(*lane.two_hosts(), *ENDLESS, *HASTY, "--lines", lane.draw.choice((1, 4)))
    pair.wait_progress(1)
    lane.rest(0, 0.5)
    gone, left = lane.draw.choice(((pair.serve, pair.drive), (pair.drive, pair.serve)))
    lane.execute_another(gone)
    pair.report(left)
    expect(gone.poll() is None, f"the program that {gone.name} executed has ended with status {gone.poll()}")


@activity("flow")
def flow(lane):
    transport = lane.draw.choice(("RC", "UC", "UD"))
    pair = Flow(*lane.two_hosts(), transport)
    lane.rest(0.1, 2)
    if lane.draw.randrange(2):
        lane.stop_and_continue(pair.take, 3)
    lane.counts["messages of flows"] += pair.end()[1]["completed"]


# ---- stock programs ----

def installed(program):
    if shutil.which(program) is None:
        raise Skip(f"{program} is not installed")
    return program


def pair_by_port(lane, program, options, server=(), client=()):
    """(server, client), started; the client connects to a TCP port of the server."""
    installed(program)
    near, far = lane.two_hosts()
    port = tcp_port()
    first = near.start(program, "-p", port, *options, *server, name=f"{program} (server)")
    near.wait_listening(port, first)
    second = far.start(program, "-p", port, *options, *client, near.address, name=f"{program} (client)")
    return first, second


def finish(lane, *programs):
    patience = lane.two_hosts()[0].settings.patience
    for program in programs:
        seen = program.wait(patience)
        expect(ended_well(program, seen), f"{program.name} ended with status {seen}")
    lane.counts["stock programs"] += len(programs)


PINGPONGS = ("ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong", "ibv_srq_pingpong")


@activity("pingpong")
def pingpong(lane):
    program = lane.draw.choice(PINGPONGS)
    size = lane.draw.choice((1, 64, 1024)) if "ud" in program else lane.draw.choice((1, 256, 4096, 65536))
    sides = pair_by_port(lane, program, (*GID, "-s", size, "-n", 200, "-c", *lane.draw.choice(((), ("-e",)))))
    finish(lane, *sides)
    for side in sides:
        no_trouble(side, ABOUT_OTHERS)


@activity("pingpong.xrc")
def xrc(lane):
    sides = pair_by_port(lane, "ibv_xsrq_pingpong", (*GID, *lane.draw.choice(((), ("-e",)))))
    finish(lane, *sides)
    for side in sides:
        expect("success" in side.out, f"{side.name} did not report success")


PERFTEST = ("ib_send_lat", "ib_write_lat", "ib_read_lat", "ib_atomic_lat", "ib_send_bw", "ib_write_bw", "ib_read_bw",
            "ib_atomic_bw")


@activity("perftest")
def perftest(lane):
    program = lane.draw.choice(PERFTEST)
    options = lane.draw.choice([(), ("-c", "XRC"), *([("-e",)] if "write" not in program else []),
                                *([("-q", 8), ("-b",)] if program.endswith("_bw") else [])])
    sides = pair_by_port(lane, program, ("-F", "-n", 500, "-u", 20, *options))
    finish(lane, *sides)
    for side in sides:
        no_trouble(side, (*HARMLESS, *ABOUT_OTHERS))
    check_table(sides[1], kind(program), default_sizes(program, options), 500)


def pair_by_manager(lane, server, client, at="-s", server_ends=True):
    """They meet at the well-known port of the program: one at a time on a node."""
    installed(server[0])
    near, far = lane.two_hosts()
    with exclusive("a well-known port", near.address):  # several programs have the same
        first = near.start(*server, name=f"{server[0]} (server)")
        lane.wait_listener(near, first)
        second = far.start(*client, at, near.address, name=f"{client[0]} (client)")
        finish(lane, second, *([first] if server_ends else []))
        first.kill()
    for side in (first, second):
        said = TROUBLE.search(side.out)
        expect(said is None, f"{side.name} speaks of trouble: '{said and said.group(0)}'")
    return first, second


MANAGED = {
    "ucmatose": (("ucmatose", "-c", 10, "-C", 10),) * 2,
    "udaddy": (("udaddy", "-c", 5, "-C", 10),) * 2,
    "rdma_client": (("rdma_server",), ("rdma_client",)),
    "rdma_xclient.rc": (("rdma_xserver", "-c", "r"), ("rdma_xclient", "-c", "r")),
    "rdma_xclient.xrc": (("rdma_xserver", "-c", "x"), ("rdma_xclient", "-c", "x")),
    "rstream": (("rstream", "-S", 10000, "-C", 50, "-I", 2, "-T", "v"),) * 2,
}
for name, (server, client) in MANAGED.items():
    activity(name)(lambda lane, s=server, c=client: pair_by_manager(lane, s, c))
activity("cmtime")(lambda lane: pair_by_manager(lane, ("cmtime",), ("cmtime", "-c", 100), server_ends=False))


@activity("rping.of_a_survivor")
def rping(lane):
    """A client of the server that lives all the time."""
    near, far = lane.two_hosts()
    with exclusive("rping -P", near.address):  # rping.c keeps one new id at a time
        client = far.start("rping", "-c", "-a", near.address, "-p", RPING_PORT, "-C", 10, "-v", "-V", name="rping (client)")
        finish(lane, client)
    expect("rdma-ping-9" in client.out, "rping did not come to its last message")


@activity("rping.killed")
def rping_killed(lane):
    """The other end is told that the connection has gone, and ends."""
    near, far = lane.two_hosts()
    port = tcp_port()
    server = near.start("rping", "-s", "-a", near.address, "-p", port, name="rping (server)")
    lane.wait_listener(near, server)
    client = far.start("rping", "-c", "-a", near.address, "-p", port, "-v", name="rping (client)")
    client.wait_for_output("rdma-ping-5", near.settings.patience)
    gone, left = lane.draw.choice(((server, client), (client, server)))
    lane.kill(gone)
    left.wait(near.settings.patience)


@activity("multicast")
def multicast(lane):
    installed("mckey")
    near, far = lane.two_hosts()
    group = f"224.10.{lane.draw.randrange(256)}.{lane.draw.randrange(1, 255)}"

    def line(host):
        return ("mckey", "-m", group, "-b", host.address)
    with exclusive("mckey"):
        receiver = near.start(*line(near), name="mckey (receiver)")
        near.wait_for("groups", 1)
        sender = far.start(*line(far), "-s", name="mckey (sender)")
        finish(lane, sender, receiver)
    expect("return status 0" in receiver.out, "mckey did not receive")


# ---- the conformance suite, beside all that ----

CHAPTERS = ("mr", "mw", "cq", "qp_table", "post_table", "transfer", "access", "atomic", "order", "flush", "error", "srq", "ud",
            "xrc", "mcast", "wr")


@activity("conformance")
def conformance(lane):
    host, _ = lane.two_hosts()
    suite = os.path.join(host.settings.build, "bin", "verbs-conformance")
    if not os.path.exists(suite):
        raise Skip("verbs-conformance is not built")
    chapter = lane.draw.choice(CHAPTERS)
    program = host.start(suite, "--chapter", chapter, name=f"verbs-conformance --chapter {chapter}")
    seen = program.wait(host.settings.patience)
    expect(seen == 0, f"{program.name} ended with status {seen}")
    conforms = re.search(r"(\d+) CONFORMS?\b", program.out)
    expect(conforms, f"{program.name} reports no clause that conforms")
    lane.counts["clauses that conform"] += int(conforms.group(1))


# ---- events of the adapter, on a node that no other activity uses ----

@activity("events")
def events(lane):
    """A port that is down for a moment: a ledger does not notice."""
    host = lane.node_of_its_own()
    pair = Pair(host, host, *ENDLESS, *PATIENT)
    watcher = host.start("ibv_asyncwatch")
    watcher.wait_for_output("async event FD", host.settings.patience)
    for number in range(1, lane.draw.randrange(2, 5)):
        for event, name in (("port-down", "IBV_EVENT_PORT_ERR"), ("port-up", "IBV_EVENT_PORT_ACTIVE")):
            host.tool("event", "verbena0", event)
            watcher.wait_for_lines(name, number, host.settings.patience)
            lane.rest(0, 0.2)
        lane.counts["events of an adapter"] += 2
        pair.wait_progress()
    count(lane, *pair.end_well())
