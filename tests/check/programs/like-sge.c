/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

/* like: irdma */
int main(int argc, char** argv) {
  begin(argc, argv);
  cap.max_recv_sge = wrong ? 16 : 12;
  open_pair();
  close_all();
  return 0;
}
