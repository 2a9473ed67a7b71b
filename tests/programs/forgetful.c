/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Uses librdmacm and ends; "forget" leaks memory of its own. Built with the address sanitizer. */
#include <rdma/rdma_cma.h>
#include <stdlib.h>
#include <string.h>

static void __attribute__((noinline)) forgotten(void) {
  if (malloc(1000) == NULL) abort();
}

int main(int argc, char** argv) {
  struct rdma_event_channel* channel = rdma_create_event_channel();
  struct rdma_cm_id* id = NULL;
  if (channel == NULL || rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) != 0) return 1;
  int count = 0;
  struct ibv_context** devices = rdma_get_devices(&count);
  if (devices == NULL || count == 0) return 2;
  rdma_free_devices(devices);
  rdma_destroy_id(id);
  rdma_destroy_event_channel(channel);
  if (argc > 1 && strcmp(argv[1], "forget") == 0) forgotten();
  return 0;
}
