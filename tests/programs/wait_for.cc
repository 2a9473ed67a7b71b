// SPDX-License-Identifier: BSD-2-Clause
//
// wait_for listeners|bound|groups COUNT SECONDS: returns when so many ids of the node (VERBENA_NODE) listen,
// or have a port, or so many memberships of multicast groups exist. Exit status 0; 1: not within that time.
// The programs' output does not help: it says that they start, not that they listen.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "cm/id_table.h"
#include "fabric/node.h"
#include "fabric/node_directory.h"

namespace {

using Clock = std::chrono::steady_clock;

int count(const char* node, std::string_view what) {
  verbena::NodeDirectory directory;
  verbena::cm::IdTable table;
  if (directory.open(verbena::directory_path(node).c_str()) != 0 || table.open(directory, node, true) != 0)
    return 0;
  int found = 0;
  const uint8_t flag = what == "listeners" ? verbena::cm::kIdListening : verbena::cm::kIdBound;
  if (what == "groups")
    table.for_each_group([&](const verbena::cm::GroupRecord&) { ++found; });
  else
    table.for_each_id(
        [&](const verbena::cm::IdRecord& id) { found += (id.facts.flags & flag) != 0 ? 1 : 0; });
  return found;
}

}  // namespace

int main(int argc, char** argv) {
  const char* node = getenv("VERBENA_NODE");
  if (argc != 4 || node == nullptr) return 2;
  const int wanted = atoi(argv[2]);
  const auto end = Clock::now() + std::chrono::seconds(atoi(argv[3]));
  while (count(node, argv[1]) < wanted) {
    if (Clock::now() > end) {
      fprintf(stderr, "no %d %s within %s s\n", wanted, argv[1], argv[3]);
      return 1;
    }
    usleep(5000);
  }
  return 0;
}
