# SPDX-License-Identifier: BSD-2-Clause
"""Two RC queue pairs of one process, through pyverbs: each operation, and the bytes it moved."""

import sys

from pyverbs import enums
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

PORT, GID_INDEX, LENGTH = 1, 1, 4096
ACCESS = (enums.IBV_ACCESS_LOCAL_WRITE | enums.IBV_ACCESS_REMOTE_WRITE | enums.IBV_ACCESS_REMOTE_READ
          | enums.IBV_ACCESS_REMOTE_ATOMIC)
POLLS = 1_000_000


class Side:
    def __init__(self, context):
        self.pd = PD(context)
        self.cq = CQ(context, 16)
        self.mr = MR(self.pd, LENGTH, ACCESS)
        cap = QPCap(max_send_wr=8, max_recv_wr=8, max_send_sge=1, max_recv_sge=1)
        self.qp = QP(self.pd, QPInitAttr(qp_type=enums.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=cap))

    def connect(self, context, peer):
        route = GlobalRoute(dgid=context.query_gid(PORT, GID_INDEX), sgid_index=GID_INDEX)
        attr = QPAttr(port_num=PORT)
        attr.dest_qp_num = peer.qp.qp_num
        attr.path_mtu = enums.IBV_MTU_1024
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
        attr.min_rnr_timer, attr.timeout, attr.retry_cnt, attr.rnr_retry = 12, 14, 7, 7
        attr.qp_access_flags = ACCESS
        attr.ah_attr = AHAttr(gr=route, is_global=1, port_num=PORT)
        self.qp.to_rts(attr)

    def sge(self, length, offset=0):
        return SGE(self.mr.buf + offset, length, self.mr.lkey)

    def post(self, opcode, length, peer=None, compare_add=None, swap=0):
        request = SendWR(wr_id=7, opcode=opcode, num_sge=1, sg=[self.sge(length)])
        if compare_add is not None:
            request.set_wr_atomic(peer.mr.rkey, peer.mr.buf, compare_add, swap)
        elif peer:
            request.set_wr_rdma(peer.mr.rkey, peer.mr.buf)
        self.qp.post_send(request)

    def completion(self, wr_id):
        for _ in range(POLLS):
            count, entries = self.cq.poll()
            if count:
                break
        else:
            sys.exit("no completion")
        if entries[0].status != enums.IBV_WC_SUCCESS or entries[0].wr_id != wr_id:
            sys.exit(f"status {entries[0].status}, wr_id {entries[0].wr_id}")
        return entries[0]

    def close(self):
        for thing in (self.qp, self.mr, self.cq, self.pd):
            thing.close()


def number(side):
    return int.from_bytes(side.mr.read(8, 0), sys.byteorder)


def store(side, value):
    side.mr.write(value.to_bytes(8, sys.byteorder), 8)


def same(what, seen, wanted):
    if seen != wanted:
        sys.exit(f"{what}: {seen!r} instead of {wanted!r}")
    print(what)


def main():
    context = Context(name="verbena0")
    one, other = Side(context), Side(context)
    one.connect(context, other)
    other.connect(context, one)

    other.qp.post_recv(RecvWR(wr_id=9, num_sge=1, sg=[other.sge(LENGTH)]))
    one.mr.write(b"a message", 9)
    one.post(enums.IBV_WR_SEND, 9)
    one.completion(7)
    received = other.completion(9)
    same("send", (received.byte_len, other.mr.read(9, 0)), (9, b"a message"))

    one.mr.write(b"a write  ", 9)
    one.post(enums.IBV_WR_RDMA_WRITE, 9, other)
    one.completion(7)
    same("write", other.mr.read(9, 0), b"a write  ")

    other.mr.write(b"a read   ", 9)
    one.post(enums.IBV_WR_RDMA_READ, 9, other)
    one.completion(7)
    same("read", one.mr.read(9, 0), b"a read   ")

    store(other, 40)
    one.post(enums.IBV_WR_ATOMIC_FETCH_AND_ADD, 8, other, compare_add=2)
    one.completion(7)
    same("fetch_and_add", (number(one), number(other)), (40, 42))

    one.post(enums.IBV_WR_ATOMIC_CMP_AND_SWP, 8, other, compare_add=42, swap=1)
    one.completion(7)
    same("compare_and_swap", (number(one), number(other)), (42, 1))

    one.close()
    other.close()
    context.close()
    print("done")


if __name__ == "__main__":
    main()
