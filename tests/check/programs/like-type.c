/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

/* like: irdma */
int main(int argc, char** argv) {
  begin(argc, argv);
  type = wrong ? IBV_QPT_UC : IBV_QPT_RC;
  open_pair();
  close_all();
  return 0;
}
