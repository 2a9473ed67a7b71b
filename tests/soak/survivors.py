# SPDX-License-Identifier: BSD-2-Clause
"""Processes that live from the beginning of a soak to its end, and what they may use."""

import os
import time

from harness.failure import expect
from rows.flows import Flow, say_of
from rows.ledger import PATIENT

WARM_UP = 0.2  # of the time: what is used after it is the measure for the end
KILOBYTES = 4096  # that a survivor may grow by
DESCRIPTORS = 8
THREADS = 1
IDLE = 0.01  # processors of a process that waits
BUSIER = 2.0  # times the processor time per message, of a process with messages

PATIENCE = 30  # seconds without a message, or until a dead process is forgotten
RPING_PORT = 7999

TICKS = os.sysconf("SC_CLK_TCK")


class Use:
    """What a process has at this moment."""

    def __init__(self, program):
        fields = open(f"/proc/{program.pid}/status").read().splitlines()
        status = {line.split(":")[0]: line.split(":")[1].split() for line in fields}
        self.kilobytes = int(status["VmRSS"][0])
        self.threads = int(status["Threads"][0])
        self.descriptors = len(os.listdir(f"/proc/{program.pid}/fd"))
        self.seconds = program.cpu_ticks() / TICKS
        self.messages = say_of(program)
        self.at = time.monotonic()


def state_of(pid):
    """Of a process (proc(5))."""
    try:
        return next(line for line in open(f"/proc/{pid}/status") if line.startswith("State:")).split()[1]
    except OSError:
        return "gone"


class Survivors:
    """A context: they run as long as it does. `seconds`: how long the soak takes."""

    def __init__(self, hosts, seconds):
        self._hosts = hosts
        self._warm_at = time.monotonic() + WARM_UP * seconds
        self._warm = {}  # program: Use when it was warm
        self._progress = {}  # flow: (messages, since when)
        self.flows, self.idle = [], []

    def __enter__(self):
        first, second = self._hosts
        for taking, sending, transport in ((first, first, "RC"), (first, second, "RC"), (second, second, "UD"),
                                           (second, first, "UC")):
            self.flows.append(Flow(taking, sending, transport, *(PATIENT if transport == "RC" else ())))
        for host in self._hosts:
            watcher = host.start("ibv_asyncwatch", name=f"ibv_asyncwatch on {host.name}")
            watcher.wait_for_output("async event FD", host.settings.patience)
            server = host.start("rping", "-s", "-P", "-a", host.address, "-p", RPING_PORT,
                                name=f"rping -P on {host.name}")
            host.wait_for("listeners")
            self.idle += [watcher, server]
        for flow in self.flows:
            flow.wait_progress(10)
        return self

    def __exit__(self, *_):
        for host in self._hosts:
            host.end_programs()

    def _programs(self):
        return [side for flow in self.flows for side in (flow.send, flow.take)] + self.idle

    def transcript(self):
        return "\n".join(host.transcript() for host in self._hosts)

    def look(self):
        """Called again and again: all live, and messages go on."""
        now = time.monotonic()
        for program in self._programs():
            expect(program.poll() is None, f"{program.name} has ended with status {program.poll()}")
        for flow in self.flows:
            messages, since = self._progress.get(flow, (-1, now))
            if (seen := say_of(flow.take)) != messages:
                messages, since = seen, now
            self._progress[flow] = messages, since
            expect(now - since < PATIENCE, f"{flow.take.name} has stood at {messages} for {PATIENCE} s")
        if not self._warm and now > self._warm_at:
            self._warm = {program: Use(program) for program in self._programs()}

    def verdict(self, counts):
        """When everything else has ended. `counts`: what they have done is added."""
        self._expect_nobody_else()
        for program, warm in self._warm.items():
            self._judge(program, warm, Use(program))
        for flow in self.flows:
            sent, taken = flow.end()
            counts["messages of survivors"] += taken["completed"]
            lossless = flow.transport == "RC"
            expect(sent["status"] == "success" and sent["completed"] == sent["posted"],
                   f"{flow.send.name}: {sent['completed']} of {sent['posted']} messages, {sent['status']}")
            expect(not lossless or taken["completed"] == sent["posted"],
                   f"{flow.take.name} has {taken['completed']} of {sent['posted']} messages")

    def _expect_nobody_else(self):
        own = {program.pid for program in self._programs()}
        deadline = time.monotonic() + PATIENCE
        while True:
            # The next process that comes cleans up after those that were killed.
            seen = {process["pid"]: process["program"] for host in self._hosts for process in host.processes()
                    if not process.get("problem", "").startswith("dead")}
            rest = {pid: name for pid, name in seen.items() if pid not in own}
            if not rest and own <= set(seen):
                return
            expect(time.monotonic() < deadline, f"the nodes still name {[(pid, name, state_of(pid)) for pid, name in rest.items()]}, "
                   f"and not {own - set(seen)}")
            time.sleep(0.1)

    def _judge(self, program, warm, now):
        grown = now.kilobytes - warm.kilobytes
        expect(grown <= KILOBYTES, f"{program.name} has grown by {grown} kB, from {warm.kilobytes}")
        expect(now.descriptors - warm.descriptors <= DESCRIPTORS,
               f"{program.name} has {now.descriptors} descriptors, {warm.descriptors} when it was warm")
        expect(now.threads - warm.threads <= THREADS,
               f"{program.name} has {now.threads} threads, {warm.threads} when it was warm")
        spent, passed = now.seconds - warm.seconds, now.at - warm.at
        if program in self.idle:
            expect(spent / passed <= IDLE, f"{program.name} has used {spent:.2f} s in {passed:.0f} s of waiting")
            return
        before, after = warm.seconds / max(warm.messages, 1), spent / max(now.messages - warm.messages, 1)
        expect(after <= BUSIER * before + 20e-6,
               f"{program.name} uses {1e6 * after:.0f} us for a message, {1e6 * before:.0f} when it was warm")
