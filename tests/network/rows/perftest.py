# SPDX-License-Identifier: BSD-2-Clause
"""perftest between two nodes: every program, every transport it offers, with and without rdma_cm."""

from cases.perftest import UD_SIZES, default_sizes, kind
from cases.rdma_cm import perftest_pair
from harness.perftest import ALL_SIZES, HARMLESS, check_table
from rows.pair import CLIENT, SERVER, by_port, finish, serve_by_manager
from rows.table import group

FEW, ITERATIONS = 50, 500
# 4.096 us * 2^20 (ibv_modify_qp(3)): perftest's own half a second, all retries together, is less than the time for
# which a busy machine may not schedule a program.
TIMEOUT = ("-u", 20)
LATENCY = ("ib_send_lat", "ib_write_lat", "ib_read_lat", "ib_atomic_lat")
BANDWIDTH = ("ib_send_bw", "ib_write_bw", "ib_read_bw", "ib_atomic_bw")
SEND_WRITE = ("ib_send_lat", "ib_send_bw", "ib_write_lat", "ib_write_bw")


def measure(hosts, program, options, sizes=(), iterations=ITERATIONS):
    _, client = by_port(hosts, program, ("-F", "-n", iterations, *TIMEOUT, *options), harmless=HARMLESS)
    check_table(client, kind(program), sizes or default_sizes(program, options), iterations)


def measure_by_manager(hosts, program, options=(), iterations=ITERATIONS):
    line = (program, "-R", "-F", "-n", iterations, *TIMEOUT, *options)
    server, client = perftest_pair(
        lambda: serve_by_manager(hosts, line),
        lambda: hosts[CLIENT].start(*line, hosts[SERVER].address, name=f"{program} (client)"),
        hosts[CLIENT].settings.patience)
    finish(hosts, client, server)
    check_table(client, kind(program), default_sizes(program, options), iterations)


# variant: (programs, options, sizes of the table, iterations)
VARIANTS = {
    "plain": ((*LATENCY, *BANDWIDTH), (), (), ITERATIONS),
    "all_sizes": (("ib_send_bw", "ib_write_bw", "ib_read_bw", "ib_send_lat", "ib_write_lat", "ib_read_lat"), ("-a",),
                  ALL_SIZES, 20),
    "events": (("ib_send_lat", "ib_send_bw", "ib_read_lat", "ib_read_bw", "ib_atomic_lat"), ("-e",), (), ITERATIONS),
    "bidirectional": (BANDWIDTH, ("-b",), (), ITERATIONS),
    "qps_8": (BANDWIDTH, ("-q", 8), (), ITERATIONS),
    "post_list": (("ib_send_bw", "ib_write_bw", "ib_read_bw"), ("-l", 8), (), 800),
    "one_outstanding": (("ib_read_bw", "ib_atomic_bw"), ("-o", 1), (), ITERATIONS),
    "compare_and_swap": (("ib_atomic_lat",), ("-A", "CMP_AND_SWAP"), (), ITERATIONS),
    "mtu_256": (("ib_send_lat",), ("-m", 256), (), ITERATIONS),
    "srq": (("ib_send_bw", "ib_send_lat"), ("--use-srq",), (), ITERATIONS),
    "srq_qps_8": (("ib_send_bw",), ("--use-srq", "-q", 8), (), ITERATIONS),
    "few_receives": (("ib_send_bw",), ("-r", 2), (), ITERATIONS),
    "ud": (("ib_send_lat", "ib_send_bw"), ("-c", "UD"), (), ITERATIONS),
    "ud_all_sizes": (("ib_send_lat",), ("-c", "UD", "-a"), UD_SIZES, 100),
    "uc": (SEND_WRITE, ("-c", "UC"), (), ITERATIONS),
    "xrc": ((*LATENCY, *BANDWIDTH), ("-c", "XRC"), (), ITERATIONS),
}
direct = group("perftest", places=("namespaces",), processors=1)
managed = group("perftest_cm", places=("namespaces",))
for program in (*LATENCY, *BANDWIDTH):
    direct.add(f"{program}.few", lambda hosts, p=program: measure(hosts, p, (), iterations=FEW))
    managed.add(f"{program}.few", lambda hosts, p=program: measure_by_manager(hosts, p, iterations=FEW))

direct.add("ib_write_bw.uc_few", lambda hosts: measure(hosts, "ib_write_bw", ("-c", "UC"), iterations=FEW))
direct.add("ib_send_lat.uc_few", lambda hosts: measure(hosts, "ib_send_lat", ("-c", "UC"), iterations=FEW))

for variant, (programs, options, sizes, iterations) in VARIANTS.items():
    for program in programs:
        direct.add(f"{program}.{variant}", lambda hosts, p=program, o=options, s=sizes, n=iterations:
                   measure(hosts, p, o, s, n), quick=False)
for program in (*LATENCY, *BANDWIDTH):
    managed.add(program, lambda hosts, p=program: measure_by_manager(hosts, p), quick=False)
for program in BANDWIDTH:
    managed.add(f"{program}.qps_4", lambda hosts, p=program: measure_by_manager(hosts, p, ("-q", 4, "-b")), quick=False)
for program in ("ib_send_lat", "ib_send_bw"):
    managed.add(f"{program}.ud", lambda hosts, p=program: measure_by_manager(hosts, p, ("-c", "UD")), quick=False)
managed.add("ib_send_lat.events", lambda hosts: measure_by_manager(hosts, "ib_send_lat", ("-e",)), quick=False)
