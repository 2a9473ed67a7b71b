/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

int main(int argc, char** argv) {
  begin(argc, argv);
  timeout = wrong ? 0 : 14;
  open_pair();
  close_all();
  return 0;
}
