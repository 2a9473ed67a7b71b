// SPDX-License-Identifier: BSD-2-Clause
//
// Checks an MPI library over its transport: messages of many sizes around a ring in both directions, collective
// operations, and one-sided ones, every byte looked at. Prints "N ranks: X operations, every byte right".
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks;
static long operations;

static void require(int is_right, const char* what, long which) {
  ++operations;
  if (is_right) return;
  fprintf(stderr, "rank %d: %s %ld: wrong bytes\n", rank, what, which);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

// The byte `at` of message `number` of rank `from`.
static unsigned char byte_of(int from, long number, size_t at) {
  return (unsigned char)(at * 131 + (size_t)from * 29 + (size_t)number * 17 + at / 256);
}

static void fill(unsigned char* bytes, size_t size, int from, long number) {
  for (size_t i = 0; i < size; ++i) bytes[i] = byte_of(from, number, i);
}

static int holds(const unsigned char* bytes, size_t size, int from, long number) {
  for (size_t i = 0; i < size; ++i)
    if (bytes[i] != byte_of(from, number, i)) return 0;
  return 1;
}

// From 1 byte to 4 MiB: eager, fragmented, by rendezvous.
static void around_the_ring(void) {
  const size_t largest = 4u << 20;
  unsigned char *out = malloc(largest), *in = malloc(largest);
  long number = 0;
  for (int direction = 1; direction >= -1; direction -= 2) {
    const int to = (rank + direction + ranks) % ranks, from = (rank - direction + ranks) % ranks;
    for (size_t size = 1; size <= largest; size = size < 3 ? size + 1 : size * 3 - size % 7, ++number) {
      fill(out, size, rank, number);
      memset(in, 0, size);
      MPI_Request both[2];
      MPI_Irecv(in, (int)size, MPI_BYTE, from, 1, MPI_COMM_WORLD, &both[0]);
      MPI_Isend(out, (int)size, MPI_BYTE, to, 1, MPI_COMM_WORLD, &both[1]);
      MPI_Waitall(2, both, MPI_STATUSES_IGNORE);
      require(holds(in, size, from, number), "message", number);
    }
  }
  free(out);
  free(in);
}

// Many small messages before the receiver looks: they are kept, in order.
static void unexpected_messages(void) {
  enum { kMessages = 500 };
  const int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
  MPI_Request sent[kMessages];
  static int64_t out[kMessages];
  for (int i = 0; i < kMessages; ++i) {
    out[i] = (int64_t)rank << 32 | i;
    MPI_Isend(&out[i], 1, MPI_INT64_T, to, 2, MPI_COMM_WORLD, &sent[i]);
  }
  for (int i = 0; i < kMessages; ++i) {
    int64_t in = -1;
    MPI_Recv(&in, 1, MPI_INT64_T, from, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    require(in == ((int64_t)from << 32 | i), "unexpected message", i);
  }
  MPI_Waitall(kMessages, sent, MPI_STATUSES_IGNORE);
}

static void collective_operations(void) {
  for (long round = 0; round < 50; ++round) {
    int64_t mine = rank + round, sum = 0;
    MPI_Allreduce(&mine, &sum, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    require(sum == (int64_t)ranks * (ranks - 1) / 2 + ranks * round, "allreduce", round);
    const size_t size = 1000 * (size_t)(round % 5 + 1);
    unsigned char* all = malloc(size * (size_t)ranks);
    unsigned char* own = malloc(size * (size_t)ranks);
    for (int to = 0; to < ranks; ++to) fill(own + (size_t)to * size, size, rank, round * ranks + to);
    MPI_Alltoall(own, (int)size, MPI_BYTE, all, (int)size, MPI_BYTE, MPI_COMM_WORLD);
    for (int from = 0; from < ranks; ++from)
      require(holds(all + (size_t)from * size, size, from, round * ranks + rank), "alltoall", round);
    const int root = (int)(round % ranks);
    if (rank == root) fill(own, size, root, round);
    MPI_Bcast(own, (int)size, MPI_BYTE, root, MPI_COMM_WORLD);
    require(holds(own, size, root, round), "bcast", round);
    free(all);
    free(own);
  }
}

static void one_sided_operations(void) {
  enum { kSlot = 8192 };
  unsigned char* memory;
  MPI_Win window;
  const size_t size = (size_t)kSlot * (size_t)ranks + sizeof(int64_t);
  MPI_Win_allocate((MPI_Aint)size, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
  memset(memory, 0, size);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_fence(0, window);
  unsigned char* out = malloc(kSlot);
  fill(out, kSlot, rank, 7);
  for (int to = 0; to < ranks; ++to) MPI_Put(out, kSlot, MPI_BYTE, to, rank * kSlot, kSlot, MPI_BYTE, window);
  MPI_Win_fence(0, window);
  for (int from = 0; from < ranks; ++from) require(holds(memory + from * kSlot, kSlot, from, 7), "put", from);
  unsigned char* in = malloc(kSlot);
  for (int at = 0; at < ranks; ++at) {
    MPI_Get(in, kSlot, MPI_BYTE, at, rank * kSlot, kSlot, MPI_BYTE, window);
    MPI_Win_fence(0, window);
    require(holds(in, kSlot, rank, 7), "get", at);
  }
  const int64_t one = 1;
  MPI_Win_lock_all(0, window);
  for (int i = 0; i < 100; ++i) {
    int64_t before;
    MPI_Fetch_and_op(&one, &before, MPI_INT64_T, 0, (MPI_Aint)kSlot * ranks, MPI_SUM, window);
    MPI_Win_flush(0, window);
    require(before >= i && before < 100 * ranks, "fetch_and_op", i);
  }
  MPI_Win_unlock_all(window);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) {
    int64_t total;
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
    memcpy(&total, memory + kSlot * ranks, sizeof total);
    MPI_Win_unlock(0, window);
    require(total == 100 * ranks, "sum of fetch_and_op", total);
  }
  free(out);
  free(in);
  MPI_Win_free(&window);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  around_the_ring();
  unexpected_messages();
  collective_operations();
  if (argc < 2 || strcmp(argv[1], "--no-windows") != 0) one_sided_operations();
  long total = 0;
  MPI_Reduce(&operations, &total, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("%d ranks: %ld operations, every byte right\n", ranks, total);
  MPI_Finalize();
  return 0;
}
