// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/machine_devices.h"

#include <filesystem>
#include <initializer_list>
#include <system_error>

namespace verbena {
namespace {

namespace fs = std::filesystem;

// The machine's /sys, whatever the preload of an outer `verbena run` shows under that name.
constexpr const char* kMachine = "/proc/self/root";

// Links without a target: the device is gone.
void remove_dangling(const fs::path& folder) {
  std::error_code error, ignored;
  for (fs::directory_iterator i(folder, error), end; !error && i != end; i.increment(error))
    if (i->is_symlink(ignored) && !fs::exists(i->path(), ignored)) fs::remove(i->path(), ignored);
}

// abi_version is the node's own: the two are the same number (device_tree.cc).
int link_devices(const fs::path& from, const fs::path& to) {
  std::error_code error, ignored;
  for (fs::directory_iterator i(kMachine + from.string(), error), end; !error && i != end;
       i.increment(error)) {
    if (!i->is_directory(ignored)) continue;
    const fs::path name = i->path().filename();
    fs::create_symlink(from / name, to / name, error);
    // Linked already, or a device of the node has the name.
    if (error == std::errc::file_exists) error.clear();
    if (error) return error.value();
  }
  return 0;  // without the folder the machine has no devices
}

}  // namespace

int show_machine_devices(const std::string& folder) {
  for (const char* name : {"/sys/class/infiniband", "/sys/class/infiniband_verbs"}) {
    remove_dangling(folder + name);
    if (const int error = link_devices(name, folder + name); error != 0) return error;
  }
  return 0;
}

}  // namespace verbena
