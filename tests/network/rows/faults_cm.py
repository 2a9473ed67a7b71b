# SPDX-License-Identifier: BSD-2-Clause
"""Connections of rdma_cm when the network fails. The queue pairs' timeout is rdma_cm's for RoCE: 4.096 us * 2^17, one
more than its packet life time (emulator/cm/connection.cc, send_req()), and rping's retries are seven
(examples/rping.c)."""

import signal
import time

from harness.failure import expect
from rows.faults import UNSCHEDULED
from rows.pair import CLIENT, SERVER, finish, serve_by_manager
from rows.table import group
from rows.vanished import wait_silence

rows = group("faults_of_rdma_cm", places=("namespaces",), processors=1)
PINGS = 5000
FAILS_AFTER = 8 * 4.096e-6 * 2 ** 17
NOTICED = 30 + 15  # seconds until TCP reports it, and those in which it is connected again (emulator/cm/link.h)


def ping(hosts, count=PINGS):
    """(server, client), pinging."""
    line = ("stdbuf", "-oL", "rping", "-C", count, "-v", "-V", "-a", hosts[SERVER].address)
    server = serve_by_manager(hosts, (*line, "-s"))
    client = hosts[CLIENT].start(*line, "-c", name="rping (client)")
    client.wait_for_output("rdma-ping-9:", hosts[CLIENT].settings.patience)
    return server, client


def pings(client):
    return client.out.count("ping data")


def wait_standstill(client):
    last, since = -1, time.monotonic()
    while time.monotonic() - since < 0.3:
        if (now := pings(client)) != last:
            last, since = now, time.monotonic()
        time.sleep(0.01)
    return last


@rows.row("rping.cable_pulled_within_retries")
def within_retries(hosts):
    server, client = ping(hosts)
    hosts[SERVER].pull_cable()
    before = wait_standstill(client)
    hosts[SERVER].plug_cable()
    finish(hosts, client, server)
    expect(before < PINGS == pings(client), f"{before} pings before, {pings(client)} in all")


@rows.row("rping.cable_pulled_for_good")
def for_good(hosts):
    """The side with requests under way, one of the two at least, fails; the other one learns of it when it can."""
    sides = ping(hosts, 1 << 30)
    began = time.monotonic()
    hosts[SERVER].pull_cable()
    while all(side.poll() is None for side in sides):
        expect(time.monotonic() < began + hosts[SERVER].settings.patience, "nobody notices")
        time.sleep(0.01)
    took = time.monotonic() - began
    expect(any("status 12" in side.err for side in sides), "requests failed otherwise")  # IBV_WC_RETRY_EXC_ERR
    expect(FAILS_AFTER * 0.9 <= took < FAILS_AFTER + 2 * UNSCHEDULED,
           f"it failed after {took:.2f} s, not {FAILS_AFTER:.2f} s")
    hosts[SERVER].plug_cable()
    for side in sides:
        side.wait(hosts[SERVER].settings.patience)
        expect("DISCONNECT EVENT" in side.err or "status 12" in side.err, f"{side.name} has not been told")


def call_without_cable(hosts):
    """The client's request is under way, and no process hears it."""
    server = serve_by_manager(hosts, ("ucmatose",))
    hosts[SERVER].pull_cable()
    return server, hosts[CLIENT].start("ucmatose", "-s", hosts[SERVER].address, name="ucmatose (client)")


@rows.row("ucmatose.request_is_repeated")
def request_is_repeated(hosts):
    server, client = call_without_cable(hosts)
    time.sleep(2)  # long enough for all that it does by itself
    expect(client.poll() is None, "the client has given up")
    hosts[SERVER].plug_cable()
    finish(hosts, client, server)
    expect("return status 0" in client.out, f"{client.name} did not say that all is well")


@rows.row("ucmatose.nobody_answers", quick=False)
def nobody_answers(hosts):
    """16 requests, with the timeouts of cases.rdma_cm.server_stopped()."""
    _, client = call_without_cable(hosts)
    began = time.monotonic()
    seconds = 16 * (2 * 0.256 + 4.096)
    expect(client.wait(seconds + hosts[CLIENT].settings.patience) != 0, "ucmatose is connected to nobody")
    took = time.monotonic() - began
    expect("event: RDMA_CM_EVENT_UNREACHABLE, error: -110" in client.out, "the client saw another event")
    expect(seconds - 1 < took < seconds + 12, f"it came after {took:.1f} s, not {seconds:.1f} s")
    hosts[SERVER].plug_cable()


def stop_in_its_turn(hosts, client):
    """While the server waits for it, and has no request under way itself."""
    deadline = time.monotonic() + hosts[SERVER].settings.patience
    while True:
        client.signal(signal.SIGSTOP)
        wait_silence(hosts[SERVER])
        server, = (process for process in hosts[SERVER].processes() if process.get("qps"))
        if server["qps"][0]["sends_outstanding"] == 0:
            return
        expect(time.monotonic() < deadline, "the server has something under way, again and again")
        client.signal(signal.SIGCONT)


@rows.row("rping.peer_is_gone_while_nothing_is_under_way")
def peer_is_gone(hosts):
    server, client = ping(hosts, 1 << 30)
    stop_in_its_turn(hosts, client)
    hosts[CLIENT].vanish()
    began = time.monotonic()
    server.wait(NOTICED + 15)
    expect("server DISCONNECT EVENT" in server.err, "the server has not been told")
    expect(time.monotonic() - began > 10, "it was noticed at once: this row is to be about silence")
    hosts[CLIENT].boot()
