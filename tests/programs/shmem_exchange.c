// SPDX-License-Identifier: BSD-2-Clause
//
// Checks an OpenSHMEM library over its transport: puts, gets and atomics between all processing elements, every word
// looked at. Prints "N PEs: every word right".
#include <shmem.h>
#include <stdio.h>

enum { kWords = 5000, kRounds = 20, kAdditions = 200 };

static long out[kWords], in[kWords], sum;

static int holds(const long* words, long from, long round) {
  for (long i = 0; i < kWords; ++i)
    if (words[i] != from * 1000000 + round * 10000 + i) return 0;
  return 1;
}

int main(void) {
  shmem_init();
  const int me = shmem_my_pe(), all = shmem_n_pes();
  int wrong = 0;
  for (long round = 0; round < kRounds; ++round) {
    for (long i = 0; i < kWords; ++i) out[i] = me * 1000000L + round * 10000 + i;
    shmem_barrier_all();
    shmem_long_put(in, out, kWords, (me + 1) % all);
    shmem_barrier_all();
    wrong += !holds(in, (me + all - 1) % all, round);
    static long fetched[kWords];
    shmem_long_get(fetched, out, kWords, (me + 2) % all);
    wrong += !holds(fetched, (me + 2) % all, round);
    shmem_barrier_all();
  }
  long last = -1;
  for (int i = 0; i < kAdditions; ++i) {
    const long before = shmem_long_atomic_fetch_add(&sum, 1, 0);
    wrong += before <= last;  // of one PE they are in order
    last = before;
  }
  shmem_barrier_all();
  wrong += shmem_long_atomic_fetch(&sum, 0) != (long)all * kAdditions;
  if (wrong != 0) fprintf(stderr, "PE %d: %d wrong\n", me, wrong);
  shmem_barrier_all();
  if (me == 0 && wrong == 0) printf("%d PEs: every word right\n", all);
  shmem_finalize();
  return wrong != 0;
}
