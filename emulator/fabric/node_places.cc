// SPDX-License-Identifier: BSD-2-Clause
//
// Where a user's nodes are (node.h).
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "fabric/node.h"
#include "fabric/private_folder.h"
#include "fabric/temporary_folder.h"

namespace verbena {
namespace {

constexpr int kMostFolders = 10000;  // names of this user's nodes folder that are tried
constexpr int kMostGaps = 8;         // names in a row that nothing has, before a search ends

bool own_directory(const std::string& path) {
  struct stat status;
  return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid();
}

// The first of <base>, <base>.1, <base>.2 … that is this user's, or that nothing stands in the way of: others
// may put what they like into /tmp. All processes of the user come to the same answer while nothing of this
// is removed.
std::string first_private_or_free(const std::string& base) {
  std::string path = base;
  for (int i = 1; i <= kMostFolders; ++i) {
    const int error = check_private_folder(path, nullptr);
    if (error == 0 || error == ENOENT) return path;
    path = base + "." + std::to_string(i);
  }
  return base;
}

std::string user_folder(const std::string& base) { return base + "/verbena-" + std::to_string(geteuid()); }

void add_if_private(const std::string& path, std::vector<std::string>* folders) {
  if (check_private_folder(path, nullptr) == 0 &&
      std::find(folders->begin(), folders->end(), path) == folders->end())
    folders->push_back(path);
}

}  // namespace

std::string nodes_folder() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && runtime[0] == '/' && own_directory(runtime))
    return std::string(runtime) + "/verbena";
  return first_private_or_free(user_folder(temporary_folder()));
}

std::vector<std::string> all_nodes_folders() {
  std::vector<std::string> folders;
  add_if_private(nodes_folder(), &folders);
  if (const char* runtime = std::getenv("XDG_RUNTIME_DIR"); runtime != nullptr && runtime[0] == '/')
    add_if_private(std::string(runtime) + "/verbena", &folders);
  add_if_private("/run/user/" + std::to_string(geteuid()) + "/verbena", &folders);
  std::vector<std::string> bases = {"/tmp", "/var/tmp", "/dev/shm"};
  if (const std::string own = temporary_folder(); own != "/tmp") bases.insert(bases.begin(), own);
  for (const std::string& base : bases) {
    add_if_private(user_folder(base), &folders);
    struct stat status;
    for (int i = 1, gaps = 0; i <= kMostFolders && gaps < kMostGaps; ++i) {
      const std::string path = user_folder(base) + "." + std::to_string(i);
      gaps = lstat(path.c_str(), &status) == 0 ? 0 : gaps + 1;
      add_if_private(path, &folders);
    }
  }
  return folders;
}

}  // namespace verbena
