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
#include "fabric/node_build.h"
#include "fabric/node_directory.h"
#include "fabric/node_holders.h"
#include "fabric/node_lock.h"
#include "fabric/node_removal.h"
#include "fabric/private_folder.h"
#include "fabric/problem.h"
#include "fabric/process_identity.h"
#include "fabric/slot_folder.h"
#include "fabric/unix_address.h"

namespace verbena {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

bool entry_equal(const GidEntry& a, const GidEntry& b) {
  return a.raw == b.raw && a.type == b.type && a.interface_index == b.interface_index &&
         a.interface_name == b.interface_name;
}

bool port_equal(const PortDescription& a, const PortDescription& b) {
  if (a.lid != b.lid || a.gid_count != b.gid_count || a.gid_count > kMaxGids) return false;
  for (uint32_t i = 0; i < a.gid_count; ++i)
    if (!entry_equal(a.gids[i], b.gids[i])) return false;
  return true;
}

bool device_equal(const DeviceDescription& a, const DeviceDescription& b) {
  if (a.name != b.name || a.node_guid != b.node_guid || a.link_layer != b.link_layer ||
      a.active_mtu != b.active_mtu || a.port_count != b.port_count || a.port_count > kMaxPorts ||
      a.lmc != b.lmc || a.pkey_count != b.pkey_count || a.pkeys != b.pkeys || !(a.limits == b.limits))
    return false;
  for (uint32_t i = 0; i < a.port_count; ++i)
    if (!port_equal(a.ports[i], b.ports[i])) return false;
  return true;
}

bool table_equal(const DeviceTable& a, const DeviceTable& b) {
  if (a.count != b.count || a.count > kMaxDevices || a.first_number != b.first_number) return false;
  for (uint32_t i = 0; i < a.count; ++i)
    if (!device_equal(a.devices[i], b.devices[i])) return false;
  return a.network.enabled == b.network.enabled && a.network.kind == b.network.kind &&
         a.network.port == b.network.port && a.network.count == b.network.count &&
         a.network.addresses == b.network.addresses;
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
  Finding finding = Finding::kMissing;
  uint32_t version = 0;
  bool inhabited = false;
  NodeDirectory directory;  // open if it could be read
};

bool exists(const std::string& path) {
  struct stat status;
  return lstat(path.c_str(), &status) == 0;
}

Finding compare(const std::string& node, const NodeDirectory& directory, const DeviceTable& wanted,
                const NetworkKey& key) {
  if (directory.header().retired.load(std::memory_order_acquire) != 0) return Finding::kOutdated;
  if (has_key(wanted.network) && exists(key_path(node)) && read_node_key(node) != key)
    return Finding::kOtherKey;
  return table_equal(directory.devices(), wanted) && device_tree_is_whole(node, wanted) &&
                 exists(directory_path(node)) && exists(node + "/slots")
             ? Finding::kUsable
             : Finding::kOutdated;
}

Inspection inspect(const std::string& node, const DeviceTable& wanted, const NetworkKey& key) {
  Inspection found;
  if (found.directory.open(directory_path(node).c_str()) == 0) {
    found.finding = compare(node, found.directory, wanted, key);
    found.version = kLayoutVersion;
  } else if (exists(node)) {
    const bool known = read_version(node, &found.version);
    found.finding = known && found.version != kLayoutVersion ? Finding::kForeign : Finding::kOutdated;
  }
  if (found.finding != Finding::kUsable && found.finding != Finding::kMissing)
    found.inhabited = node_is_inhabited(node);
  return found;
}

// False: the node is being removed, or cannot be locked.
bool hold(const NodeDirectory& directory, pid_t holder) {
  const Descriptor own{directory.reopen()};
  if (own.fd < 0 || flock_within(own.fd, LOCK_SH, kLockPatience) != 0 ||
      directory.header().retired.load(std::memory_order_acquire) != 0)
    return false;
  add_holder(directory, holder);
  return true;
}

void copy_holders(const NodeDirectory& from, const NodeDirectory& to) {
  for (uint32_t i = 0; i < kMaxHolders; ++i)
    if (const uint64_t identity = from.holder(i).load(std::memory_order_acquire); identity != 0)
      add_holder(to, pid_of_identity(identity));
}

// A node that is made beside its place, for `holder`. Deleted if it is still there at the end.
class FreshNode {
 public:
  explicit FreshNode(const std::string& parent) : path_(passing_name(parent, ".new")) {}
  FreshNode(const FreshNode&) = delete;
  FreshNode& operator=(const FreshNode&) = delete;
  ~FreshNode() { delete_folder(path_); }

  int make(const DeviceTable& devices, const NetworkKey& key, pid_t holder, std::string* problem) {
    if (const int error = build_node(path_, devices, key, problem); error != 0) return error;
    if (const int error = directory_.open(directory_path(path_).c_str()); error != 0)
      return fail_errno(error, problem, path_);
    add_holder(directory_, holder);
    return 0;
  }

  int put_at(const std::string& node, std::string* problem) const {
    if (rename(path_.c_str(), node.c_str()) == 0) return 0;
    return fail_errno(errno, problem, "cannot put the node at " + node);
  }

  // `before`: of the node that stands there, if it can be read. EAGAIN: a process joins it just now.
  int replace(const std::string& node, const NodeDirectory& before, std::string* problem) const {
    const Descriptor own{before.is_open() ? before.reopen() : -1};
    if (before.is_open()) {
      if (own.fd < 0 || flock_within(own.fd, LOCK_EX, 0ms) != 0 || node_is_inhabited(node)) return EAGAIN;
      before.header().retired.store(1, std::memory_order_release);
      copy_holders(before, directory_);
    }
    if (!exists(node)) return put_at(node, problem);
    int error = exchange_nodes(path_, node);
    // Without a directory that can be read, a process may have become a member since the last look.
    if (error == 0 && !before.is_open() && node_is_inhabited(path_)) error = exchange_nodes(path_, node);
    return error == 0 ? 0 : fail_errno(error, problem, "cannot put the node at " + node);
  }

 private:
  std::string path_;
  NodeDirectory directory_;
};

// EAGAIN: look again. The caller has the lock of the folder of nodes.
int make_under_lock(const std::string& path, const FreshNode& fresh, const DeviceTable& wanted,
                    const NetworkKey& key, pid_t holder, std::string* problem) {
  const Inspection found = inspect(path, wanted, key);
  if (found.finding == Finding::kMissing) return fresh.put_at(path, problem);
  if (found.finding == Finding::kUsable) return hold(found.directory, holder) ? 0 : EAGAIN;
  if (!found.inhabited) return fresh.replace(path, found.directory, problem);
  if (found.finding == Finding::kOtherKey)
    return fail(EBUSY, problem, path + " has another key, and processes still live there: end them first");
  if (found.finding == Finding::kOutdated && found.directory.is_open()) {
    if (!hold(found.directory, holder)) return EAGAIN;
    return mend_node(path, found.directory, key, problem);
  }
  return fail(EPROTO, problem,
              path + " was made by another version of Verbena (layout " + std::to_string(found.version) +
                  ", this one has " + std::to_string(kLayoutVersion) +
                  ") and processes still live there: end them, or take another node with --node NAME");
}

int make_or_take(const std::string& path, const DeviceTable& wanted, const NetworkKey& key, pid_t holder,
                 std::string* problem) {
  const std::string parent = path.substr(0, path.rfind('/'));
  FreshNode fresh(parent);
  if (const int error = fresh.make(wanted, key, holder, problem); error != 0) return error;
  const auto deadline = std::chrono::steady_clock::now() + kLockPatience;
  for (;;) {
    {
      const FolderLock lock(parent, kLockPatience);
      if (lock.error() != 0) return fail_errno(lock.error(), problem, "cannot lock " + parent);
      const int error = make_under_lock(path, fresh, wanted, key, holder, problem);
      if (error != EAGAIN) return error;
    }
    if (std::chrono::steady_clock::now() >= deadline)
      return fail_errno(ETIMEDOUT, problem, "another process neither joins nor removes the node " + path);
    std::this_thread::sleep_for(1ms);
  }
}

}  // namespace

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

// So are devices with other ports.
std::string ports_part(const DeviceTableOptions& options) {
  std::string part;
  if (options.beside) part += "-beside";
  if (options.ports != 1) part += "-p" + std::to_string(options.ports);
  if (options.lmc != 0) part += "-lmc" + std::to_string(options.lmc);
  if (options.pkeys == DeviceTableOptions{}.pkeys) return part;
  part += "-pk";
  for (const uint16_t pkey : options.pkeys) {
    char digits[8];
    std::snprintf(digits, sizeof digits, "%04x", pkey);
    part += digits;
  }
  return part;
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
  if (network.kind == NetworkKind::kRoce) add(kRocePort);
  for (const auto& address : network.addresses)
    for (const uint8_t byte : address) add(byte);
  for (const AddressRange& range : network.peer_ranges) {
    for (const uint8_t byte : range.address) add(byte);
    add(range.bits);
  }
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
  const char* const kind = network.kind == NetworkKind::kRoce ? "roce"
                           : network.addresses.empty()        ? "net"
                                                              : "ip";
  return std::string("-") + kind + "-" + digits;
}

}  // namespace

std::string node_path(const std::string& name, const DeviceTableOptions& options) {
  const char* link_layer = options.link_layer == LinkLayer::kEthernet ? "eth" : "ib";
  return nodes_folder() + "/" + (name.empty() ? "default" : name) + "-" + std::to_string(options.count) +
         "-" + link_layer + ports_part(options) + limits_part(options.limits) + network_part(options.network);
}

// Read from the slots if their layout is known, else from the sockets, which every version has.
bool node_is_inhabited(const std::string& node) {
  NodeDirectory directory;
  if (directory.open(directory_path(node).c_str()) == 0) {
    if (directory.header().boot != this_boot()) return false;
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

SlotAddress slot_address(const NodeDirectory& directory, const std::string& node, uint32_t slot,
                         uint32_t generation) {
  char name[64];
  std::snprintf(name, sizeof name, "verbena/member/%016llx/%u.%u",
                static_cast<unsigned long long>(directory.header().node_id), slot, generation);
  SlotAddress address(slot_folder(node, slot, generation));
  address.node = node;
  address.name = slot_name(slot, generation);
  address.abstract_name = name;
  return address;
}

int ensure_node(const std::string& path, const DeviceTableOptions& options, std::string* problem,
                pid_t holder) {
  if (path.empty() || path[0] != '/') return fail(EINVAL, problem, "not an absolute path: " + path);
  if (path.size() > kMaxNodePath)
    return fail(ENAMETOOLONG, problem,
                path + " is too long for a node (" + std::to_string(path.size()) + " characters, at most " +
                    std::to_string(kMaxNodePath) + "): set TMPDIR or XDG_RUNTIME_DIR to a shorter one");
  if (const int error = ensure_private_folder(path.substr(0, path.rfind('/')), problem); error != 0)
    return error;

  if (const int error = check_private_folder(path, problem); error != 0 && error != ENOENT) return error;

  const DeviceTable wanted = describe_devices(options);
  int error = 0;
  if (const Inspection found = inspect(path, wanted, options.network.key);
      found.finding != Finding::kUsable || !hold(found.directory, holder))
    error = make_or_take(path, wanted, options.network.key, holder, problem);
  sweep_nodes(path.substr(0, path.rfind('/')));
  return error;
}

}  // namespace verbena
