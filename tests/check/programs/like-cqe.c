/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

/* like: rxe */
int main(int argc, char** argv) {
  begin(argc, argv);
  entries = wrong ? 100000 : 30000;
  open_pair();
  close_all();
  return 0;
}
