/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

/* also: leak-device leak-pd leak-cq leak-mr */
int main(int argc, char** argv) {
  begin(argc, argv);
  open_pair();
  if (!wrong) close_all();
  return 0;
}
