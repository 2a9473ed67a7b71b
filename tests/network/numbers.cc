// SPDX-License-Identifier: BSD-2-Clause
//
// network_numbers QPN SLOT: the process that opens the device next on the node (VERBENA_NODE) gets that slot,
// and its first queue pair that number, if they are free. Otherwise numbers come round after 16 million queue
// pairs only.
#include <cstdio>
#include <cstdlib>

#include "fabric/node.h"
#include "fabric/node_directory.h"

int main(int argc, char** argv) {
  const char* node = getenv("VERBENA_NODE");
  if (argc != 3 || node == nullptr) return 2;
  verbena::NodeDirectory directory;
  if (const int error = directory.open(verbena::directory_path(node).c_str()); error != 0) {
    fprintf(stderr, "%s: errno %d\n", node, error);
    return 1;
  }
  constexpr unsigned kFirstQpn = 2;  // node_directory.cc
  directory.header().next_qpn.store(static_cast<unsigned>(atoi(argv[1])) - kFirstQpn);
  directory.header().next_slot.store(static_cast<unsigned>(atoi(argv[2])));
  return 0;
}
