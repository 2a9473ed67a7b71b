# SPDX-License-Identifier: BSD-2-Clause
"""Makes objects, and compares what rdma(8) shows with them. Prints "done"."""

import json
import os
import subprocess
import sys

from pyverbs import enums
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPCap, QPInitAttr
from pyverbs.srq import SRQ, SrqAttr, SrqInitAttr

import rc_loopback

MANY = 300  # memory regions: a dump of many datagrams


def rdma(*arguments):
    done = subprocess.run(["rdma", "-j", *arguments], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0 or done.stderr:
        sys.exit(f"rdma {arguments}: status {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def check(what, seen, wanted):
    if seen != wanted:
        sys.exit(f"{what}: {seen!r} instead of {wanted!r}")


def mine(kind):
    """The entries of this process, and of no other."""
    entries = rdma("resource", "show", kind)
    check(f"the processes of {kind}", {entry["pid"] for entry in entries}, {os.getpid()} if entries else set())
    check(f"the program of {kind}", {entry["comm"] for entry in entries} <= {open("/proc/self/comm").read().strip()},
          True)
    return entries


def counts():
    [device] = rdma("resource", "show")
    return {kind: device[kind] for kind in ("pd", "cq", "qp", "cm_id", "mr", "ctx", "srq")}


def statistics():
    [port] = rdma("statistic", "show", "link", "verbena0/1")
    return {name: value for name, value in port.items() if isinstance(value, int) and name != "port"}


check("nothing", counts(), dict.fromkeys(("pd", "cq", "qp", "cm_id", "mr", "ctx", "srq"), 0))
check("no queue pairs", rdma("resource", "show", "qp"), [])

context = Context(name="verbena0")
pd = PD(context)
empty_pd = PD(context)
cq = CQ(context, 15)
regions = [MR(pd, 4096 + i, enums.IBV_ACCESS_LOCAL_WRITE) for i in range(MANY)]
srq = SRQ(pd, SrqInitAttr(SrqAttr(max_wr=8)))
cap = QPCap(max_send_wr=4, max_recv_wr=4, max_send_sge=1, max_recv_sge=1)
kinds = {"RC": enums.IBV_QPT_RC, "UC": enums.IBV_QPT_UC, "UD": enums.IBV_QPT_UD}
pairs = {name: QP(pd, QPInitAttr(qp_type=kind, scq=cq, rcq=cq, cap=cap)) for name, kind in kinds.items()}
with_srq = QP(pd, QPInitAttr(qp_type=enums.IBV_QPT_RC, scq=cq, rcq=cq, srq=srq, cap=cap))

check("the counts", counts(), {"pd": 2, "cq": 1, "qp": 4, "cm_id": 0, "mr": MANY, "ctx": 1, "srq": 1})
[context_entry] = mine("ctx")
[cq_entry] = mine("cq")
check("the CQ", (cq_entry["cqe"], cq_entry["users"], cq_entry["ctxn"]), (15, 8, context_entry["ctxn"]))
domains = {entry["users"]: entry for entry in mine("pd")}
check("users of the domains", sorted(domains), [0, MANY + 1 + 4])
check("the domains' context", {entry["ctxn"] for entry in domains.values()}, {context_entry["ctxn"]})
domain = domains[MANY + 5]["pdn"]
entries = mine("mr")
check("lengths of the regions", sorted(int(entry["mrlen"]) for entry in entries), [4096 + i for i in range(MANY)])
check("numbers of the regions", len({entry["mrn"] for entry in entries}), MANY)
check("the regions' domain", {entry["pdn"] for entry in entries}, {domain})
if "rkey" in entries[0]:  # for administrators only
    check("the keys", {int(entry["lkey"], 16)
                       for entry in entries}, {region.lkey for region in regions})
[srq_entry] = mine("srq")
check("the SRQ", (srq_entry["type"], srq_entry["pdn"]), ("BASIC", domain))
check("its queue pair", str(with_srq.qp_num) in json.dumps(srq_entry), True)
shown = {entry["lqpn"]: entry for entry in mine("qp")}
check("numbers of the queue pairs", set(shown), {qp.qp_num for qp in [*pairs.values(), with_srq]})
for name, qp in pairs.items():
    entry = shown[qp.qp_num]
    check(f"the {name} queue pair", (entry["type"], entry["state"], entry["pdn"]), (name, "RESET", domain))
check("one by its number", rdma("resource", "show", "qp", "lqpn", str(with_srq.qp_num))[0]["lqpn"], with_srq.qp_num)

PORT = "/sys/class/infiniband/verbena0/ports/1"
# pma_attrs_ext[] of Linux' drivers/infiniband/core/sysfs.c
PMA = """VL15_dropped excessive_buffer_overrun_errors link_downed link_error_recovery local_link_integrity_errors
    multicast_rcv_packets multicast_xmit_packets port_rcv_constraint_errors port_rcv_data port_rcv_errors port_rcv_packets
    port_rcv_remote_physical_errors port_rcv_switch_relay_errors port_xmit_constraint_errors port_xmit_data
    port_xmit_discards port_xmit_packets port_xmit_wait symbol_error unicast_rcv_packets unicast_xmit_packets""".split()


def pma():
    """The folder `counters`, read as cat does."""
    check("the files in counters", sorted(os.listdir(f"{PORT}/counters")), sorted(PMA))
    done = subprocess.run(["cat", *(f"{PORT}/counters/{name}" for name in PMA)], capture_output=True, text=True, timeout=60,
                          check=True)
    return dict(zip(PMA, map(int, done.stdout.split()), strict=True))


before = statistics()
pma_before = pma()
sides = [rc_loopback.Side(context) for _ in range(2)]
sides[0].connect(context, sides[1])
sides[1].connect(context, sides[0])
connected = {entry["lqpn"]: entry for entry in mine("qp")}[sides[0].qp.qp_num]
check("a connected queue pair", (connected["state"], connected["rqpn"], connected["path-mig-state"]),
      ("RTS", sides[1].qp.qp_num, "MIGRATED"))
for _ in range(3):
    sides[0].post(enums.IBV_WR_RDMA_WRITE, 1000, sides[1])
    sides[0].completion(7)
sides[0].post(enums.IBV_WR_RDMA_READ, 3000, sides[1])
sides[0].completion(7)
ROSE = {"sent_requests": 4, "sent_bytes": 6000, "rcvd_requests": 4, "rcvd_bytes": 6000}


def rise():
    now = statistics()
    return {name: now[name] - before[name] for name in now if now[name] != before[name]}


check("the counters", rise(), ROSE)
COUNTERS = f"{PORT}/hw_counters"
now = statistics()
check("the files of the counters", sorted(os.listdir(COUNTERS)), sorted([*now, "lifespan"]))
for name, value in now.items():
    check(f"the file of {name}", int(open(os.path.join(COUNTERS, name)).read()), value)
cat = subprocess.run(["cat", os.path.join(COUNTERS, "sent_bytes")], capture_output=True, text=True, timeout=60, check=True)
check("sent_bytes, by cat", cat.stdout, f"{now['sent_bytes']}\n")

# Three messages of one packet each, and their acknowledgements; a READ, whose response is three packets. Both ends are
# at this port. 4 bytes are a unit.
PMA_ROSE = {"port_xmit_data": 1500, "port_rcv_data": 1500, "port_xmit_packets": 10, "port_rcv_packets": 10,
            "unicast_xmit_packets": 10, "unicast_rcv_packets": 10}


def pma_rise():
    now = pma()
    return {name: now[name] - pma_before[name] for name in now if now[name] != pma_before[name]}


check("the folder counters", pma_rise(), PMA_ROSE)
for side in sides:
    side.close()
check("the counters without the queue pairs", rise(), ROSE)
check("the folder counters without the queue pairs", pma_rise(), PMA_ROSE)
check("counters bound to queue pairs", rdma("statistic", "qp", "show"), [])
check("the mode of those", [port["mode"] for port in rdma("statistic", "qp", "mode")], ["qp auto off"])

for thing in (with_srq, *pairs.values(), srq, *regions, cq, empty_pd, pd):
    thing.close()
check("the counts at the end", counts(), {"pd": 0, "cq": 0, "qp": 0, "cm_id": 0, "mr": 0, "ctx": 1, "srq": 0})
context.close()
check("the counts of a closed device", counts()["ctx"], 0)
print("done")
