/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

#include <sys/mman.h>
#include <sys/wait.h>

/* Memory that parent and child share is the device's, too. */
int main(int argc, char** argv) {
  begin(argc, argv);
  open_pair();
  char* const page = mmap(NULL, kSize, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | (wrong ? MAP_PRIVATE : MAP_SHARED), -1, 0);
  NEED(page != MAP_FAILED);
  struct ibv_mr* const shared = ibv_reg_mr(pd, page, kSize, kAll);
  NEED(shared != NULL);
  const pid_t child = fork();
  if (child == 0) {
    strcpy(page, "reply");
    exit(0);
  }
  int status;
  NEED(waitpid(child, &status, 0) == child && status == 0);
  NEED(ibv_dereg_mr(shared) == 0 && munmap(page, kSize) == 0);
  close_all();
  return 0;
}
