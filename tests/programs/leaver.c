/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Opens the first device, makes a queue pair, and ends: "close" closes everything, "leak" nothing, "abort"
 * aborts, "wait" waits for the end of its standard input. */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char buffer[4096];

int main(int argc, char** argv) {
  const char* end = argc > 1 ? argv[1] : "close";
  struct ibv_device** devices = ibv_get_device_list(NULL);
  struct ibv_context* context = devices != NULL && devices[0] != NULL ? ibv_open_device(devices[0]) : NULL;
  if (context == NULL) return 1;
  struct ibv_pd* pd = ibv_alloc_pd(context);
  struct ibv_mr* mr = pd != NULL ? ibv_reg_mr(pd, buffer, sizeof buffer, IBV_ACCESS_LOCAL_WRITE) : NULL;
  struct ibv_cq* cq = ibv_create_cq(context, 100, NULL, NULL, 0);
  if (mr == NULL || cq == NULL) return 2;
  struct ibv_qp_init_attr attr = {
      .send_cq = cq, .recv_cq = cq, .cap = {10, 10, 1, 1, 0}, .qp_type = IBV_QPT_RC};
  struct ibv_qp* qp = ibv_create_qp(pd, &attr);
  if (qp == NULL) return 3;
  printf("qp 0x%06x\n", qp->qp_num);
  fflush(stdout);
  if (strcmp(end, "abort") == 0) abort();
  if (strcmp(end, "leak") == 0) return 0;
  char byte;
  if (strcmp(end, "wait") == 0 && read(0, &byte, 1) < 0) return 4;
  const int failed = ibv_destroy_qp(qp) | ibv_destroy_cq(cq) | ibv_dereg_mr(mr) | ibv_dealloc_pd(pd) |
                     ibv_close_device(context);
  ibv_free_device_list(devices);
  return failed != 0 ? 5 : 0;
}
