# SPDX-License-Identifier: BSD-2-Clause
"""Unreliable transports when the network fails: numbered messages one way (tests/network/flow). Some may be lost, none
comes twice, late or damaged, and the sender gets no notice."""

import json
import os
import signal
import time

from harness.failure import expect
from rows.table import group

_meetings = iter(range(1 << 30))


def say_of(side):
    """The number of messages this side has reported, of its current meeting."""
    said = [line.split()[1] for line in side.out.splitlines() if line.startswith("at ") and line.split()[1:]]
    return int(said[-1]) if said else 0


class Flow:
    """`taking` receives what `sending` posts; both are hosts."""

    def __init__(self, taking, sending, transport, *options):
        self._taking = taking
        self.transport = transport
        self._patience = taking.settings.patience
        self.take = start(taking, "take", transport, options, meet := new_meeting(taking))
        self.send = start(sending, "send", transport, options, meet)

    def wait_progress(self, more=300):
        """Waits until so many more messages have come."""
        wait_progress(self.take, self._patience, more)

    def wait_standstill(self):
        """Waits until nothing has come for a while."""
        last, since = -1, time.monotonic()
        while time.monotonic() - since < 0.3:
            if (now := say_of(self.take)) != last:
                last, since = now, time.monotonic()
            time.sleep(0.01)

    def end(self):
        """(the sender's report, the receiver's) when the last message has come. Messages that still wait when their
        sender
        ends are lost."""
        self.send.signal(signal.SIGUSR1)
        self.send.wait_for_output("rests", self._patience)
        deadline = time.monotonic() + self._patience
        while say_of(self.take) < say_of(self.send) and self.dropped() == 0:
            expect(time.monotonic() < deadline, f"the last of {say_of(self.send)} messages has not come")
            time.sleep(0.01)
        self.wait_standstill()
        dropped = self.dropped()
        return end(self.send, self._patience), {**end(self.take, self._patience), "dropped": dropped}

    def dropped(self):
        """Messages that found no receive request, since their receiver was not scheduled for so long."""
        return sum(qp["dropped"] for process in self._taking.processes() for qp in process.get("qps", []))


def new_meeting(host):
    return os.path.join(host.folder, f"flow.{next(_meetings)}")


def start(host, part, transport, options, *meetings):
    """The side goes to meetings[0] at once: a receiver listens there when this returns."""
    program = os.path.join(host.settings.build, "bin", "network_flow")
    line = [word for meeting in meetings for word in ("--meet", meeting)]
    side = host.start(program, part, *line, "--transport", transport, *options, name=f"flow ({part} on {host.name})")
    if part == "take":
        side.wait_for_output("listening", host.settings.patience)
    return side


def wait_progress(side, patience, more=300):
    goal = say_of(side) + more
    deadline = time.monotonic() + patience
    while say_of(side) < goal:
        expect(side.poll() is None, f"{side.name} has ended at {say_of(side)}")
        expect(time.monotonic() < deadline, f"{side.name} is at {say_of(side)}, not {goal}")
        time.sleep(0.01)


def wait_all(side, messages, patience):
    """Waits until the last of so many has come, or is missing."""
    deadline = time.monotonic() + patience
    while say_of(side) < messages:
        expect(time.monotonic() < deadline, f"the last of {messages} messages has not come to {side.name}")
        time.sleep(0.01)


def end(side, patience):
    """Its report of its last meeting."""
    side.signal(signal.SIGTERM)
    seen = side.wait(patience)
    reports = [json.loads(line) for line in side.out.splitlines() if line.startswith("{")]
    fault = reports[-1]["fault"] if reports else "it said nothing"
    expect(seen == 0 and not fault, f"{side.name} ended with status {seen}: {fault}")
    return reports[-1]


rows = group("flows", places=("namespaces",), processors=1)


def expect_success(report):
    expect(report["status"] == "success" and report["completed"] == report["posted"],
           f"the sender has been told of a loss: {report}")


def cable_pulled(hosts, transport):
    """TCP delivers everything when the cable is back in time."""
    flow = Flow(*hosts, transport)
    flow.wait_progress()
    hosts[0].pull_cable()
    flow.wait_standstill()
    hosts[0].plug_cable()
    flow.wait_progress()
    sent, taken = flow.end()
    expect_success(sent)
    expect(taken["completed"] + taken["dropped"] == sent["posted"],
           f"{taken['completed']} of {sent['posted']} messages have come, {taken['dropped']} found no receive request")


LOST_AFTER = 2  # seconds that a message waits for a connection (docs/NETWORK.md)


def connection_lost(hosts, transport):
    """Messages are lost only while the peer cannot be reached; later ones arrive."""
    flow = Flow(*hosts, transport)
    flow.wait_progress()
    hosts[0].pull_cable()
    for host in hosts:
        host.break_connections()
    gone_on = say_of(flow.send)
    time.sleep(LOST_AFTER + 1)  # the message posted first has waited so long
    wait_progress(flow.send, hosts[0].settings.patience, 1)
    expect(say_of(flow.send) > gone_on, "the sender waits for a host that cannot be reached")
    hosts[0].plug_cable()
    flow.wait_progress()
    counted = sum(qp["lost"] for process in hosts[1].processes() for qp in process["qps"])
    sent, taken = flow.end()
    expect_success(sent)
    lost = sent["posted"] - taken["completed"]
    expect(lost > taken["dropped"], f"{lost} messages are lost, of which {taken['dropped']} found no receive request")
    expect(0 < counted <= lost, f"{lost} messages are lost, and `verbena status` says {counted}")


def connections_reset(hosts, transport):
    """Messages on their way are lost, later ones are not."""
    flow = Flow(*hosts, transport)
    for number in range(10):
        flow.wait_progress(100)
        broken = hosts[number % 2].break_connections()
        expect(broken.strip(), "there was no connection to break")
    flow.wait_progress()
    expect_success(flow.end()[0])


for transport in ("UD", "UC"):
    rows.add(f"{transport.lower()}.cable_pulled", lambda hosts, t=transport: cable_pulled(hosts, t))
    rows.add(f"{transport.lower()}.connection_lost", lambda hosts, t=transport: connection_lost(hosts, t))
    rows.add(f"{transport.lower()}.connections_reset", lambda hosts, t=transport: connections_reset(hosts, t))
