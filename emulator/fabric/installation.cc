// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/installation.h"

#include <errno.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <system_error>

#ifndef VERBENA_LIBRARY_DIR_FROM_BIN
#error "the build defines VERBENA_LIBRARY_DIR_FROM_BIN"
#endif

namespace verbena {
namespace {

namespace fs = std::filesystem;

// ld.so(8), LD_PRELOAD: "separated by spaces or colons"; RDMAV_DRIVERS: ':' or ';'.
constexpr const char* kSeparators = " \t\n:;";

bool holds_preload(const fs::path& folder) { return access((folder / kPreloadFile).c_str(), R_OK) == 0; }

}  // namespace

int find_installation_from(const std::string& folder, Installation* out, std::string* problem) {
  const fs::path installed = (fs::path(folder) / VERBENA_LIBRARY_DIR_FROM_BIN).lexically_normal();
  const fs::path built = (fs::path(folder) / "../lib/verbena").lexically_normal();
  const fs::path& found = holds_preload(installed) ? installed : built;
  if (!holds_preload(found)) {
    *problem = std::string("no ") + kPreloadFile + " in " + installed.string();
    if (built != installed) *problem += " nor in " + built.string();
    return ENOENT;
  }
  out->library_folder = found.string();
  out->preload = (found / kPreloadFile).string();
  out->driver = (found / kDriverStem).string();
  if (out->driver.find_first_of(kSeparators) != std::string::npos) {
    *problem = "the path " + out->library_folder +
               " has a space, colon or semicolon, which LD_PRELOAD and RDMAV_DRIVERS take for separators: "
               "install Verbena elsewhere";
    return EINVAL;
  }
  return 0;
}

int find_installation(Installation* out, std::string* problem) {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (error) {
    *problem = "cannot read /proc/self/exe: " + error.message() + " (mount /proc)";
    return ENOENT;
  }
  return find_installation_from(self.parent_path().string(), out, problem);
}

}  // namespace verbena
