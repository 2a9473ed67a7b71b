/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

int main(int argc, char** argv) {
  begin(argc, argv);
  open_pair_in_init();
  if (wrong)
    NEED(to_rts(qp[0]) == EINVAL);
  else
    connect_pair();
  close_all();
  return 0;
}
