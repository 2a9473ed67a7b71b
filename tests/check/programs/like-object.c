/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

/* like: irdma */
int main(int argc, char** argv) {
  begin(argc, argv);
  with_srq = wrong;
  open_pair();
  close_all();
  return 0;
}
