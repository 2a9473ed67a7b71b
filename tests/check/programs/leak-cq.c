/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

/* also: leak-device leak-pd */
int main(int argc, char** argv) {
  begin(argc, argv);
  open_device();
  make_queues();
  if (!wrong) close_all();
  return 0;
}
