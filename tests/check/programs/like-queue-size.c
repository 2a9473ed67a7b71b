/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

/* like: irdma */
int main(int argc, char** argv) {
  begin(argc, argv);
  cap.max_send_wr = wrong ? 8192 : 4000;
  open_pair();
  close_all();
  return 0;
}
