/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Says whether the bytes of a WRITE are at their target when ibv_post_send() returns. One of them is enough for "later": the
 * thread may be interrupted, and then they are there when it looks.
 */
#include "programs/common.h"

int main(int argc, char** argv) {
  begin(argc, argv);
  open_pair();
  int later = 0;
  for (int i = 1; i <= 100; ++i) {
    memset(buf, i, 8);
    struct ibv_sge sge = sge_of(buf, 8);
    struct ibv_send_wr wr = remote_wr(&sge, IBV_WR_RDMA_WRITE);
    NEED(post(qp[0], &wr) == 0);
    later += memcmp(buf + kSize, buf, 8) != 0;
    NEED(completion() == IBV_WC_SUCCESS && memcmp(buf + kSize, buf, 8) == 0);
  }
  puts(later == 0 ? "at once" : "later");
  close_all();
  return 0;
}
