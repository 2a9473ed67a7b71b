// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/node.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>
#include <utility>

#include "fabric/descriptor.h"
#include "fabric/device_tree.h"
#include "fabric/node_directory.h"
#include "fabric/private_folder.h"
#include "fabric/problem.h"
#include "fabric/unix_address.h"

namespace verbena {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr auto kLockPatience = 10s;
constexpr int kMostFolders = 10000;  // names of this user's nodes folder that are tried

bool own_directory(const std::string& path) {
  struct stat status;
  return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid();
}

bool entry_equal(const GidEntry& a, const GidEntry& b) {
  return a.raw == b.raw && a.type == b.type && a.interface_index == b.interface_index &&
         a.interface_name == b.interface_name;
}

bool device_equal(const DeviceDescription& a, const DeviceDescription& b) {
  if (a.name != b.name || a.node_guid != b.node_guid || a.link_layer != b.link_layer || a.lid != b.lid ||
      a.active_mtu != b.active_mtu || a.gid_count != b.gid_count || a.gid_count > kMaxGids ||
      !(a.limits == b.limits))
    return false;
  for (uint32_t i = 0; i < a.gid_count; ++i)
    if (!entry_equal(a.gids[i], b.gids[i])) return false;
  return true;
}

bool table_equal(const DeviceTable& a, const DeviceTable& b) {
  if (a.count != b.count || a.count > kMaxDevices) return false;
  for (uint32_t i = 0; i < a.count; ++i)
    if (!device_equal(a.devices[i], b.devices[i])) return false;
  return a.network.enabled == b.network.enabled && a.network.port == b.network.port &&
         a.network.count == b.network.count && a.network.addresses == b.network.addresses;
}

// The node's key. All zero: the node has none.
NetworkKey read_node_key(const std::string& node) {
  NetworkKey key{};
  const Descriptor file(open(key_path(node).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (file.fd < 0 || read(file.fd, key.data(), key.size()) != static_cast<ssize_t>(key.size())) return {};
  return key;
}

int write_node_key(const std::string& node, const NetworkKey& key) {
  const Descriptor file(open(key_path(node).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (file.fd < 0) return errno;
  if (fchmod(file.fd, 0600) != 0) return errno;
  return write(file.fd, key.data(), key.size()) == static_cast<ssize_t>(key.size()) ? 0 : EIO;
}

// The first fields of every directory file, whatever its version. The two fields never move.
bool read_version(const std::string& node, uint32_t* version) {
  const Descriptor file(open(directory_path(node).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  uint32_t words[2];
  static_assert(offsetof(DirectoryHeader, magic) == 0 && offsetof(DirectoryHeader, layout_version) == 4);
  if (file.fd < 0 || read(file.fd, words, sizeof words) != sizeof words || words[0] != kDirectoryMagic)
    return false;
  *version = words[1];
  return true;
}

// True: a process has the unix socket open, whatever its type.
bool is_open_socket(const std::string& folder, const std::string& name) {
  UnixAddress address;
  if (const int error = address.set(folder, name.c_str()); error != 0)
    return error != ENOENT && error != ENOTDIR;
  const Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  return connect(socket.fd, address.get(), UnixAddress::size()) == 0 ||
         (errno != ENOENT && errno != ENOTDIR && errno != ECONNREFUSED);
}

// True: a process serves the slot in `folder`, or could. A stopped process counts. Each version has its own
// names for its sockets.
bool somebody_listens(const std::string& folder) {
  std::error_code error, ignored;
  for (fs::directory_iterator i(folder, error), end; !error && i != end; i.increment(error))
    if (i->is_socket(ignored) && is_open_socket(folder, i->path().filename().string())) return true;
  return error && error != std::errc::no_such_file_or_directory && error != std::errc::not_a_directory;
}

enum class Finding { kUsable, kMissing, kOutdated, kForeign, kOtherKey };

struct Inspection {
  Finding finding = Finding::kUsable;
  uint32_t version = 0;
  bool inhabited = false;
};

Inspection inspect(const std::string& node, const DeviceTable& wanted, const NetworkKey& key) {
  struct stat status;
  if (lstat(node.c_str(), &status) != 0) return {Finding::kMissing, 0, false};
  NodeDirectory directory;
  uint32_t version = 0;
  if (directory.open(directory_path(node).c_str()) != 0) {
    const bool known = read_version(node, &version);
    const Finding finding = known && version != kLayoutVersion ? Finding::kForeign : Finding::kOutdated;
    return {finding, version, node_is_inhabited(node)};
  }
  if (wanted.network.enabled != 0 && read_node_key(node) != key)
    return {Finding::kOtherKey, kLayoutVersion, node_is_inhabited(node)};
  if (table_equal(directory.devices(), wanted) && device_tree_is_whole(node, wanted))
    return {Finding::kUsable, kLayoutVersion, false};
  return {Finding::kOutdated, kLayoutVersion, node_is_inhabited(node)};
}

// Builds a whole node in `folder`, which must not exist.
int build(const std::string& folder, const DeviceTable& devices, const NetworkKey& key,
          std::string* problem) {
  int error = make_private_folder(folder);
  if (error == 0 && devices.network.enabled != 0) error = write_node_key(folder, key);
  if (error == 0) error = make_private_folder(folder + "/slots");
  if (error == 0) error = write_device_tree(folder, devices);
  if (error == 0) error = NodeDirectory::create(directory_path(folder).c_str(), devices);
  if (error == 0 && chmod(directory_path(folder).c_str(), 0600) != 0) error = errno;
  return error == 0 ? 0 : fail_errno(error, problem, "cannot build the node in " + folder);
}

void remove_tree(const std::string& path) {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

// Puts the complete `fresh` in the place of `node`. The previous node lies at `fresh` afterwards.
int exchange(const std::string& fresh, const std::string& node) {
  if (renameat2(AT_FDCWD, fresh.c_str(), AT_FDCWD, node.c_str(), RENAME_EXCHANGE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return errno;
  // On a file system without RENAME_EXCHANGE there is no node for a moment. A process that looks then waits
  // for our lock.
  const std::string aside = node + ".old";
  remove_tree(aside);
  if (rename(node.c_str(), aside.c_str()) != 0 || rename(fresh.c_str(), node.c_str()) != 0) return errno;
  return rename(aside.c_str(), fresh.c_str()) == 0 ? 0 : errno;
}

int replace(const std::string& fresh, const std::string& node, std::string* problem) {
  int error = exchange(fresh, node);
  if (error == 0 && node_is_inhabited(fresh)) {
    // A process has become a member since the last look: the old node stays.
    error = exchange(fresh, node);
  }
  remove_tree(fresh);
  return error == 0 ? 0 : fail_errno(error, problem, "cannot put the node at " + node);
}

int make_under_lock(const std::string& path, const DeviceTable& wanted, const NetworkKey& key,
                    std::string* problem) {
  const Inspection found = inspect(path, wanted, key);
  if (found.finding == Finding::kUsable) return 0;
  if (found.inhabited) {
    if (found.finding == Finding::kOtherKey)
      return fail(EBUSY, problem, path + " has another key, and processes still live there: end them first");
    if (found.finding == Finding::kOutdated && found.version == kLayoutVersion) return 0;
    return fail(EPROTO, problem,
                path + " was made by another version of Verbena (layout " + std::to_string(found.version) +
                    ", this one has " + std::to_string(kLayoutVersion) +
                    ") and processes still live there: end them, or take another node with --node NAME");
  }
  const std::string fresh = path + ".new";
  remove_tree(fresh);  // a process that died while building it left it: we hold the lock
  if (const int error = build(fresh, wanted, key, problem); error != 0) {
    remove_tree(fresh);
    return error;
  }
  if (found.finding != Finding::kMissing) return replace(fresh, path, problem);
  if (rename(fresh.c_str(), path.c_str()) == 0) return 0;
  const int error = errno;
  remove_tree(fresh);
  return fail_errno(error, problem, "cannot put the node at " + path);
}

// flock(2) with a time limit, because the holder may be stopped.
int lock(int fd) {
  const auto deadline = std::chrono::steady_clock::now() + kLockPatience;
  while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return errno;
    if (std::chrono::steady_clock::now() >= deadline) return ETIMEDOUT;
    std::this_thread::sleep_for(2ms);
  }
  return 0;
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

}  // namespace

std::string nodes_folder() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && runtime[0] == '/' && own_directory(runtime))
    return std::string(runtime) + "/verbena";
  const char* temporary = std::getenv("TMPDIR");
  const std::string base = temporary != nullptr && temporary[0] == '/' ? temporary : "/tmp";
  return first_private_or_free(base + "/verbena-" + std::to_string(geteuid()));
}

bool valid_node_name(const std::string& name) {
  constexpr const char* kAllowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
  return !name.empty() && name.size() <= 24 && name[0] != '.' &&
         name.find_first_not_of(kAllowed) == std::string::npos;
}

namespace {

// Devices with other limits are other devices: their node has a name of its own.
std::string limits_part(const DeviceLimits& limits) {
  if (limits == DeviceLimits{}) return "";
  char digits[17];
  std::snprintf(digits, sizeof digits, "%08x", static_cast<unsigned>(fingerprint(limits)));
  return std::string("-") + limits.profile.data() + "-" + digits;
}

// A node with a network has its own addresses and port, in its network namespace: several namespaces may see
// the folder.
std::string network_part(const NetworkOptions& network) {
  if (!network.enabled) return "";
  struct stat space {};
  stat("/proc/self/ns/net", &space);
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  const auto add = [&hash](uint64_t value) {
    for (int i = 0; i < 8; ++i) hash = (hash ^ (value >> (8 * i) & 0xff)) * 0x100000001b3;
  };
  add(space.st_ino);
  add(network.port);
  for (const auto& address : network.addresses)
    for (const uint8_t byte : address) add(byte);
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
  return std::string("-") + (network.addresses.empty() ? "net" : "ip") + "-" + digits;
}

}  // namespace

std::string node_path(const std::string& name, const DeviceTableOptions& options) {
  const char* link_layer = options.link_layer == LinkLayer::kEthernet ? "eth" : "ib";
  return nodes_folder() + "/" + (name.empty() ? "default" : name) + "-" + std::to_string(options.count) +
         "-" + link_layer + limits_part(options.limits) + network_part(options.network);
}

// Read from the slots if their layout is known, else from the sockets, which every version has.
bool node_is_inhabited(const std::string& node) {
  NodeDirectory directory;
  if (directory.open(directory_path(node).c_str()) == 0) {
    for (uint32_t i = 0; i < kMaxSlots; ++i)
      if (directory.occupied(i)) return true;
    return false;
  }
  std::error_code error;
  for (fs::directory_iterator i(node + "/slots", error), end; !error && i != end; i.increment(error))
    if (somebody_listens(i->path().string())) return true;
  return false;
}

std::string directory_path(const std::string& node) { return node + "/directory"; }

std::string key_path(const std::string& node) { return node + "/key"; }

std::string slot_name(uint32_t slot, uint32_t generation) {
  return std::to_string(slot) + "." + std::to_string(generation);
}

std::string slot_folder(const std::string& node, uint32_t slot, uint32_t generation) {
  return node + "/slots/" + slot_name(slot, generation);
}

int ensure_node(const std::string& path, const DeviceTableOptions& options, std::string* problem) {
  if (path.empty() || path[0] != '/') return fail(EINVAL, problem, "not an absolute path: " + path);
  if (path.size() > kMaxNodePath)
    return fail(ENAMETOOLONG, problem,
                path + " is too long for a node (" + std::to_string(path.size()) + " characters, at most " +
                    std::to_string(kMaxNodePath) + "): set TMPDIR or XDG_RUNTIME_DIR to a shorter one");
  if (const int error = ensure_private_folder(path.substr(0, path.rfind('/')), problem); error != 0)
    return error;

  if (const int error = check_private_folder(path, problem); error != 0 && error != ENOENT) return error;

  const DeviceTable wanted = describe_devices(options);
  if (inspect(path, wanted, options.network.key).finding == Finding::kUsable) return 0;

  const std::string lock_path = path + ".lock";
  const Descriptor lock_file(open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (lock_file.fd < 0) return fail_errno(errno, problem, "cannot open " + lock_path);
  if (fchmod(lock_file.fd, 0600) != 0) return fail_errno(errno, problem, lock_path);
  if (const int error = lock(lock_file.fd); error != 0)
    return fail_errno(error, problem, "cannot lock " + lock_path);
  return make_under_lock(path, wanted, options.network.key, problem);
}

}  // namespace verbena
