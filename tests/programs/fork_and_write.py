# SPDX-License-Identifier: BSD-2-Clause
"""Copy-on-fork: a peer WRITEs into the memory region of a process that forks. What it writes is in the parent's pages,
whichever process wrote to them first after the fork, and never in the child's. Prints "done".

    fork_and_write.py          the process that forks; it starts the peer
    fork_and_write.py peer     reads "qpn gid address rkey", connects, and WRITEs as it is told: "page value"
"""

import ctypes
import os
import subprocess
import sys

from pyverbs import enums
from pyverbs.addr import AHAttr, GlobalRoute, GID
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, SendWR

PORT, GID_INDEX, PAGE, PAGES, ROUNDS = 1, 1, 4096, 12, 8
HALF = PAGE // 2
UNNEEDED = 2  # enum ibv_fork_status
ACCESS = enums.IBV_ACCESS_LOCAL_WRITE | enums.IBV_ACCESS_REMOTE_WRITE


def check(what, seen, wanted):
    if seen != wanted:
        sys.exit(f"{what}: {seen!r} instead of {wanted!r}")


class End:
    def __init__(self):
        self.context = Context(name="verbena0")
        self.pd = PD(self.context)
        self.cq = CQ(self.context, 16)
        self.mr = MR(self.pd, PAGE * PAGES, ACCESS)
        cap = QPCap(max_send_wr=8, max_recv_wr=8, max_send_sge=1, max_recv_sge=1)
        self.qp = QP(self.pd, QPInitAttr(qp_type=enums.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=cap))

    def name(self):
        return f"{self.qp.qp_num} {self.context.query_gid(PORT, GID_INDEX).gid} {self.mr.buf} {self.mr.rkey}"

    def connect(self, name):
        qpn, gid, self.address, self.rkey = name.split()[0], name.split()[1], *map(int, name.split()[2:])
        attr = QPAttr(port_num=PORT)
        attr.dest_qp_num = int(qpn)
        attr.path_mtu = enums.IBV_MTU_1024
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
        attr.min_rnr_timer, attr.timeout, attr.retry_cnt, attr.rnr_retry = 12, 14, 7, 7
        attr.qp_access_flags = ACCESS
        attr.ah_attr = AHAttr(gr=GlobalRoute(dgid=GID(gid), sgid_index=GID_INDEX), is_global=1, port_num=PORT)
        self.qp.to_rts(attr)

    def write_page(self, page, value):
        """The first half of the peer's page."""
        self.mr.write(bytes([value]) * HALF, HALF)
        request = SendWR(wr_id=1, opcode=enums.IBV_WR_RDMA_WRITE, num_sge=1, sg=[SGE(self.mr.buf, HALF, self.mr.lkey)])
        request.set_wr_rdma(self.rkey, self.address + page * PAGE)
        self.qp.post_send(request)
        while True:
            count, entries = self.cq.poll()
            if count:
                check("the status of a WRITE", entries[0].status, enums.IBV_WC_SUCCESS)
                return


def peer():
    end = End()
    print(end.name(), flush=True)
    end.connect(sys.stdin.readline())
    for line in sys.stdin:
        end.write_page(*map(int, line.split()))
        print("written", flush=True)


def child_of(end, orders, answers):
    """Writes to its own pages when it is told, and says in the end whether anything else is in them."""
    before = end.mr.read(PAGE * PAGES, 0)
    own = bytearray(before)
    for line in orders:
        page = int(line)
        own[page * PAGE:(page + 1) * PAGE] = b"c" * PAGE
        ctypes.memset(end.mr.buf + page * PAGE, ord("c"), PAGE)
        answers.write("touched\n")
        answers.flush()
    answers.write("same\n" if end.mr.read(PAGE * PAGES, 0) == bytes(own) else "other\n")
    answers.flush()


def one_round(end, other, number):
    value = 1 + number
    ctypes.memset(end.mr.buf, 0, PAGE * PAGES)
    orders, to_child = os.pipe()
    from_child, answers = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(to_child)
        child_of(end, os.fdopen(orders), os.fdopen(answers, "w"))
        os._exit(0)
    os.close(orders)
    os.close(answers)
    to_child, from_child = os.fdopen(to_child, "w"), os.fdopen(from_child)

    def remote(page):
        other.stdin.write(f"{page} {value}\n")
        other.stdin.flush()
        check("the peer", other.stdout.readline(), "written\n")

    def parent(page):
        ctypes.memset(end.mr.buf + page * PAGE + HALF, ord("p"), HALF)

    def forked(page):
        to_child.write(f"{page}\n")
        to_child.flush()
        check("the child", from_child.readline(), "touched\n")

    # Each order of the three, twice.
    orders = ((remote, parent, forked), (remote, forked, parent), (parent, remote, forked), (parent, forked, remote),
              (forked, remote, parent), (forked, parent, remote))
    for page in range(PAGES):
        for step in orders[page % len(orders)]:
            step(page)
    for page in range(PAGES):
        seen = end.mr.read(PAGE, page * PAGE)
        check(f"round {number}, page {page}: what the peer wrote", seen[:HALF], bytes([value]) * HALF)
        check(f"round {number}, page {page}: what the parent wrote", seen[HALF:], b"p" * HALF)
    to_child.close()
    check("the child's pages", from_child.read(), "same\n")
    check("the child's status", os.waitpid(child, 0)[1], 0)


def main():
    if sys.argv[1:] == ["peer"]:
        return peer()
    end = End()
    check("ibv_is_fork_initialized", ctypes.CDLL("libibverbs.so.1").ibv_is_fork_initialized(), UNNEEDED)
    other = subprocess.Popen([sys.executable, __file__, "peer"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    name = other.stdout.readline()
    other.stdin.write(end.name() + "\n")
    other.stdin.flush()
    end.connect(name)
    for number in range(ROUNDS):
        one_round(end, other, number)
    other.stdin.close()
    check("the peer's status", other.wait(), 0)
    print("done")


main()
