/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

/* Numbers are sent, one buffer for all of them. */
enum { kNumbers = 200 };

int main(int argc, char** argv) {
  start(argc, argv);
  cap.max_send_wr = cap.max_recv_wr = kNumbers;
  entries = 2 * kNumbers;
  open_pair();
  int* const number = (int*)buf;
  int* const arrived = (int*)(buf + kSize);
  struct ibv_wc wc;
  for (int i = 0; i < kNumbers; ++i) NEED(receive_bytes(qp[1], i, (char*)&arrived[i], sizeof *arrived) == 0);
  for (int i = 0; i < kNumbers; ++i) {
    *number = i;
    NEED(send_bytes(qp[0], buf, sizeof *number) == 0);
    if (!wrong) NEED(poll_one(cq, &wc, 5000) && poll_one(cq, &wc, 5000));
  }
  for (int i = 0; wrong && i < 2 * kNumbers; ++i) NEED(poll_one(cq, &wc, 5000));
  int changed = 0;
  for (int i = 0; i < kNumbers; ++i) changed += arrived[i] != i;
  if (changed != 0)
    printf("%d of %d numbers arrived changed\n", changed, kNumbers);
  else
    printf("%d numbers arrived\n", kNumbers);
  close_all();
  return changed != 0;
}
