# SPDX-License-Identifier: BSD-2-Clause
"""Sends Ethernet frames by a raw packet queue pair: those given in hexadecimal, one after the other."""

import sys

from pyverbs import enums
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, SendWR

POLLS = 1_000_000

context = Context(name="verbena0")
pd = PD(context)
cq = CQ(context, 16)
mr = MR(pd, 8192, enums.IBV_ACCESS_LOCAL_WRITE)
cap = QPCap(max_send_wr=8, max_recv_wr=1, max_send_sge=1, max_recv_sge=1)
qp = QP(pd, QPInitAttr(qp_type=enums.IBV_QPT_RAW_PACKET, scq=cq, rcq=cq, cap=cap))
qp.to_rts(QPAttr(port_num=1))
for text in sys.argv[1:]:
    frame = bytes.fromhex(text)
    mr.write(frame, len(frame))
    sge = SGE(mr.buf, len(frame), mr.lkey)
    qp.post_send(SendWR(wr_id=7, opcode=enums.IBV_WR_SEND, num_sge=1, sg=[sge]))
    for _ in range(POLLS):
        count, entries = cq.poll()
        if count:
            break
    else:
        sys.exit("no completion")
    if entries[0].status != enums.IBV_WC_SUCCESS:
        sys.exit(f"status {entries[0].status}")
print("done")
