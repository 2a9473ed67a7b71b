# SPDX-License-Identifier: BSD-2-Clause
"""UC and UD over real UDP sockets, with many messages in flight.

A receiver that is not scheduled for longer than its receive buffer lasts loses datagrams in its kernel: 184 packets of
1 KiB where net.core.rmem_max has its default. That is no fault of the sender, and nobody repeats UC and UD. The kernel counts
such datagrams (RcvbufErrors). A run with any is repeated. A message that is missing without any was lost by Verbena.
"""

import json
import time

from cases.perftest import kind
from harness.failure import Failure, expect
from harness.pair import no_trouble
from harness.perftest import COLUMNS, HARMLESS
from rows.pair import CLIENT, SERVER, finish, start_by_port
from rows.perftest import TIMEOUT

MOST_RUNS = 5
# The sender is done, and for so long nothing comes: all is there that will come. (perftest's server may measure the clock's
# frequency for longer, and has all messages then.)
QUIET = 3  # s
ROCE_PORT = f"{4791:04X}"


def udp_counters(host):
    names, values = (line.split()[1:] for line in host.network_table("snmp").splitlines() if line.startswith("Udp:"))
    return dict(zip(names, map(int, values)))


def count_dropped(host):
    """Datagrams that the host's kernel had no space for where they were to be received."""
    counters = udp_counters(host)
    return counters["RcvbufErrors"] + counters.get("MemErrors", 0)


def count_unread(host):
    """Bytes in the receive buffers of the sockets for RoCE v2 (proc_net_udp: tx_queue:rx_queue)."""
    sockets = [line.split() for line in host.network_table("udp").splitlines()[1:]]
    return sum(int(fields[4].split(":")[1], 16) for fields in sockets if fields[1].endswith(f":{ROCE_PORT}"))


class Arrivals:
    """What the receiving host's kernel has seen since the beginning of a run."""

    def __init__(self, host):
        self._host = host
        self._dropped_before = count_dropped(host)
        self._last, self._changed_at = None, time.monotonic()

    def dropped(self):
        return count_dropped(self._host) - self._dropped_before

    def are_quiet(self):
        seen = (udp_counters(self._host)["InDatagrams"], count_unread(self._host))
        if seen != self._last or seen[1] != 0:
            self._last, self._changed_at = seen, time.monotonic()
        return time.monotonic() - self._changed_at > QUIET


def requests_in(host, program):
    """Messages that its queue pairs have taken; None: it has none any more, and is about to exit."""
    try:
        nodes = json.loads(host.tool("status", "--json"))["nodes"]
    except Failure:  # the node has gone with its last process
        return None
    counts = [qp["requests_in"] for node in nodes for process in node["processes"] if process["pid"] == program.pid
              for qp in process["qps"]]
    return sum(counts) if counts else None


def has_result(program, size, iterations, columns):
    return any(line.split()[:2] == [str(size), str(iterations)] and len(line.split()) == columns
               for line in program.out.splitlines())


def run_once(hosts, program, options, size, iterations, client_behind):
    """How many datagrams the receiver's kernel has dropped. 0: all messages have come."""
    arrivals = Arrivals(hosts[SERVER])
    server, client = start_by_port(hosts, program, ("-F", "-n", iterations, *TIMEOUT, "-s", size, *options),
                                   client_behind=client_behind)
    columns = COLUMNS[kind(program)]
    deadline = time.monotonic() + hosts[SERVER].settings.patience
    while client.poll() is None or server.poll() is None:
        if arrivals.dropped() != 0:
            break
        # perftest's client prints its figures when its sends have completed, and then waits for the server.
        is_sent = has_result(client, size, iterations, columns)
        if is_sent and arrivals.are_quiet() and server.poll() is None:
            come = requests_in(hosts[SERVER], server)
            expect(come is None or come >= iterations,
                   f"{come} of {iterations} messages have come, and the receiver's kernel has dropped no datagram")
        expect(time.monotonic() < deadline, f"{client.name} still ran after {hosts[SERVER].settings.patience:.0f} s")
        time.sleep(0.02)
    # Also of a run that has ended: its table may count what came instead.
    if dropped := arrivals.dropped():
        for side in (client, server):
            side.kill()
        return dropped
    finish(hosts, client, server)
    for side in (client, server):
        no_trouble(side, HARMLESS)
    # Its figures do not matter. They are 0 if perftest could not measure the clock's frequency (harness/perftest.py).
    expect(has_result(client, size, iterations, columns), f"{client.name} printed no result")
    return 0


def measure(hosts, program, options, size, iterations, client_behind=()):
    """As perftest.measure(), of one size. The receives must be posted before the first message comes: all of them, -r.
    `client_behind`: as start_by_port()."""
    seen = []
    for _ in range(MOST_RUNS):
        seen.append(run_once(hosts, program, options, size, iterations, client_behind))
        if seen[-1] == 0:
            return
        print(f"repeated: the receiver's kernel has dropped {seen[-1]} datagrams", flush=True)
    raise Failure(f"the receiver's kernel has dropped datagrams in each of {MOST_RUNS} runs: {seen}")
