/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

/* also: leak-device */
int main(int argc, char** argv) {
  begin(argc, argv);
  open_device();
  if (!wrong) close_device();
  return 0;
}
