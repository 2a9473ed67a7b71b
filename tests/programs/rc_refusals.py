# SPDX-License-Identifier: BSD-2-Clause
"""Two RC queue pairs of one process: a SEND whose receive request comes late, and a WRITE with a key that there is not."""

import time

from pyverbs import enums
from pyverbs.device import Context
from pyverbs.wr import RecvWR, SendWR
from rc_loopback import LENGTH, POLLS, Side, same

LATE = 0.05  # seconds


def main():
    context = Context(name="verbena0")
    one, other = Side(context), Side(context)
    one.connect(context, other)
    other.connect(context, one)

    one.mr.write(b"too early", 9)
    one.post(enums.IBV_WR_SEND, 9)
    until = time.monotonic() + LATE
    while time.monotonic() < until:
        same_count, _ = one.cq.poll()
        if same_count:
            raise SystemExit("the SEND is complete before there is a receive request")
    other.qp.post_recv(RecvWR(wr_id=9, num_sge=1, sg=[other.sge(LENGTH)]))
    one.completion(7)
    same("late", (other.completion(9).byte_len, other.mr.read(9, 0)), (9, b"too early"))

    request = SendWR(wr_id=8, opcode=enums.IBV_WR_RDMA_WRITE, num_sge=1, sg=[one.sge(9)])
    request.set_wr_rdma(other.mr.rkey + 1, other.mr.buf)
    one.qp.post_send(request)
    for _ in range(POLLS):
        count, entries = one.cq.poll()
        if count:
            break
    same("refused", (count, entries[0].status), (1, enums.IBV_WC_REM_ACCESS_ERR))
    one.close()
    other.close()
    context.close()
    print("done")


if __name__ == "__main__":
    main()
