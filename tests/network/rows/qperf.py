# SPDX-License-Identifier: BSD-2-Clause
"""qperf between two nodes: its tests of RC, which find each other by rdma_cm (-cm 1)."""

from cases.rdma_cm import QPERF_RACE, installed
from harness import ports
from harness.failure import expect
from rows.pair import CLIENT, SERVER, finish
from rows.table import group

rows = group("qperf")
TESTS = ("rc_lat", "rc_bw", "rc_bi_bw", "rc_rdma_read_lat", "rc_rdma_read_bw", "rc_rdma_write_lat", "rc_rdma_write_bw",
         "rc_rdma_write_poll_lat", "rc_compare_swap_mr", "rc_fetch_add_mr", "ver_rc_compare_swap", "ver_rc_fetch_add")
# qperf 0.4.11 uses rdma_cm for RC alone ("-cm set but not used in test uc_lat"); by itself it addresses by LID, without
# a GRH (src/rdma.c, ib_prep()), which no Ethernet port takes, here as on RoCE. Over LIDs there is no network.
BY_LID = "addresses by LID, for which there is no network"
LEFT_OUT = {"uc_lat": BY_LID, "uc_bw": BY_LID, "uc_bi_bw": BY_LID, "uc_rdma_write_lat": BY_LID,
            "uc_rdma_write_bw": BY_LID, "uc_rdma_write_poll_lat": BY_LID, "ud_lat": BY_LID, "ud_bw": BY_LID,
            "ud_bi_bw": BY_LID, "-cm 0": BY_LID,
            "xrc_lat, xrc_bw, xrc_bi_bw": "written for ibv_open_xrc_domain(), which rdma-core does not have"}


def qperf(hosts, test):
    installed("qperf")
    port = ports.reserve()
    server = hosts[SERVER].start("qperf", "-lp", port, name="qperf (server)")
    hosts[SERVER].wait_listening(port, server)
    for _ in range(20):
        client = hosts[CLIENT].start("qperf", "-lp", port, "-t", 1, "-cm", 1, hosts[SERVER].address, test,
                                     name="qperf (client)")
        if client.wait(hosts[CLIENT].settings.patience) == 0 or QPERF_RACE not in client.out + client.err:
            break
    finish(hosts, client)
    expect(f"{test}:" in client.out and " = " in client.out, "qperf printed no result")


for test in TESTS:
    rows.add(test, lambda hosts, t=test: qperf(hosts, t))
