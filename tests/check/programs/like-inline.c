/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

/* like: irdma */
int main(int argc, char** argv) {
  begin(argc, argv);
  cap.max_inline_data = wrong ? 256 : 96;
  open_pair();
  close_all();
  return 0;
}
