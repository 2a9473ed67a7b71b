// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/node_removal.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include "fabric/instruments.h"
#include "fabric/node.h"
#include "fabric/node_directory.h"
#include "fabric/node_file.h"
#include "fabric/node_holders.h"
#include "fabric/node_lock.h"
#include "fabric/private_folder.h"
#include "fabric/process_identity.h"

namespace verbena {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr auto kShortPatience = 100ms;
constexpr int kMostNames = 256;
constexpr int kMostRemovals = 8;
constexpr const char* kGone = ".gone";
constexpr const char* kNew = ".new";
constexpr time_t kLately = 3600;  // seconds

// A port that went down because the machine has lost its addresses is no state to remember.
bool remembers(const NodeDirectory& directory) {
  if (has_lasting_instrument(directory)) return true;  // records of processes that have ended
  const uint32_t lowered = directory.header().ports_lowered.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < directory.devices().count; ++i)
    if (directory.events(i).port_down() && (lowered & 1u << i) == 0) return true;
  return false;
}

bool has_member(const NodeDirectory& directory, uint32_t except) {
  for (uint32_t i = 0; i < kMaxSlots; ++i)
    if (i != except && directory.occupied(i)) return true;
  return false;
}

// The caller has the exclusive lock.
Removal judge(const NodeDirectory& directory, const RemovalOptions& options) {
  if (directory.header().retired.load(std::memory_order_acquire) != 0) return Removal::kRemoved;
  const bool same_boot = directory.header().boot == this_boot();
  if (same_boot && (has_member(directory, options.own_slot) || count_holders(directory, options.own) != 0))
    return Removal::kInUse;
  return !options.with_ports && remembers(directory) ? Removal::kRemembers : Removal::kRemoved;
}

// The caller has the folder's lock.
Removal put_aside(const std::string& path, const std::string& aside) {
  if (rename(path.c_str(), aside.c_str()) == 0) return Removal::kRemoved;
  return errno == ENOENT ? Removal::kNoNode : Removal::kFailed;
}

// Processes of another version hold no lock that this one knows: what has changed lately may be about to be
// used.
bool changed_lately(const std::string& path) {
  struct stat status;
  for (const std::string& of : {path, path + "/slots", directory_path(path)})
    if (lstat(of.c_str(), &status) == 0 && time(nullptr) - status.st_mtime < kLately) return true;
  return false;
}

// A node whose directory cannot be read: damaged, or another version's.
Removal remove_unreadable(const std::string& path, const std::string& aside, const RemovalOptions& options) {
  if (changed_lately(path) || node_is_inhabited(path)) return Removal::kInUse;
  return options.only_look ? Removal::kRemoved : put_aside(path, aside);
}

Removal remove_locked(const std::string& path, const std::string& aside, const RemovalOptions& options) {
  const int error = check_private_folder(path, nullptr);
  if (error != 0) return error == ENOENT ? Removal::kNoNode : Removal::kFailed;
  Descriptor file;
  NodeDirectory directory;
  if (open_node_file(directory_path(path), &file) != 0 || directory.open_file(file.fd) != 0)
    return remove_unreadable(path, aside, options);
  const Descriptor own{directory.reopen()};
  if (own.fd < 0) return Removal::kFailed;
  if (const int busy = flock_within(own.fd, LOCK_EX, 0ms); busy != 0)
    return busy == ETIMEDOUT ? Removal::kInUse : Removal::kFailed;
  const Removal judgement = judge(directory, options);
  if (judgement != Removal::kRemoved || options.only_look) return judgement;
  directory.header().retired.store(1, std::memory_order_release);
  return put_aside(path, aside);
}

// True: its process (passing_name()) works on it.
bool is_being_made(const std::string& name, const struct stat& status) {
  const uint64_t creator = std::strtoull(name.c_str() + std::strlen(kNew) + 1, nullptr, 16);
  return process_lives(creator) &&
         (pid_of_identity(creator) != 0 || time(nullptr) - status.st_mtime < kLately);
}

// A folder that a process which has died was making or removing.
void sweep_passing(const fs::path& path) {
  const std::string name = path.filename().string();
  struct stat status;
  if (lstat(path.c_str(), &status) != 0 || status.st_uid != geteuid() || !S_ISDIR(status.st_mode)) return;
  const std::string kind = name.substr(0, name.find('.', 1));
  if (kind == kGone || (kind == kNew && !is_being_made(name, status))) delete_folder(path.string());
}

}  // namespace

std::string passing_name(const std::string& folder, const char* kind) {
  static std::atomic<uint32_t> next{0};
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  char name[96];
  std::snprintf(name, sizeof name, "/%s.%llx.%u.%llx", kind,
                static_cast<unsigned long long>(identity_of_process(getpid())), next.fetch_add(1),
                static_cast<unsigned long long>(now.tv_sec) * 1'000'000'000 +
                    static_cast<unsigned long long>(now.tv_nsec));
  return folder + name;
}

void delete_folder(const std::string& path) {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

Removal remove_node(const std::string& path, const RemovalOptions& options) {
  const std::string folder = path.substr(0, path.rfind('/'));
  const std::string aside = passing_name(folder, kGone);
  Removal result;
  {
    const FolderLock lock(folder, kShortPatience);
    if (lock.error() != 0) return lock.error() == ENOENT ? Removal::kNoNode : Removal::kFailed;
    result = remove_locked(path, aside, options);
  }
  if (result == Removal::kRemoved && !options.only_look) delete_folder(aside);
  return result;
}

void sweep_nodes(const std::string& folder) {
  std::vector<fs::path> nodes;
  std::error_code error;
  int names = 0;
  for (fs::directory_iterator i(folder, error), end; !error && i != end && names < kMostNames;
       i.increment(error), ++names) {
    if (i->path().filename().string().starts_with("."))
      sweep_passing(i->path());
    else if (fs::exists(directory_path(i->path().string())))
      nodes.push_back(i->path());
  }
  int removed = 0;
  for (const fs::path& node : nodes)
    if (removed < kMostRemovals && remove_node(node.string()) == Removal::kRemoved) ++removed;
}

}  // namespace verbena
