/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The programs of docs/DEBUGGING.md: each has one typical mistake, in the lines that ask for `wrong`.
 * `PROGRAM right` is the same without it. Device, queue pairs and requests are those of the corpus of
 * `verbena check`.
 */
#ifndef VERBENA_TESTS_DEBUGGING_COMMON_H
#define VERBENA_TESTS_DEBUGGING_COMMON_H

#include <time.h>

#include "../../check/programs/common.h"

static inline void start(int argc, char** argv) {
  wrong = argc < 2 || strcmp(argv[1], "right") != 0;
  setvbuf(stdout, NULL, _IOLBF, 0); /* what is said is seen, however the program ends */
  alarm(20);
}

static inline int64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Polls one completion. Says what is wrong with it, and ends; 0: nothing came within `wait_ms`. */
static inline int poll_one(struct ibv_cq* which, struct ibv_wc* wc, int wait_ms) {
  const int64_t until = now_ms() + wait_ms;
  int polled;
  while ((polled = ibv_poll_cq(which, 1, wc)) == 0)
    if (now_ms() > until) return 0;
  NEED(polled == 1);
  if (wc->status != IBV_WC_SUCCESS) {
    printf("message %d: %s, vendor_err 0x%x\n", (int)wc->wr_id, ibv_wc_status_str(wc->status),
           wc->vendor_err);
    exit(1);
  }
  return 1;
}

#endif
