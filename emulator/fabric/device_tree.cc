// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/device_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <fstream>
#include <string_view>

#ifndef VERBENA_VERSION
#error "the build defines VERBENA_VERSION"
#endif

namespace verbena {
namespace {

constexpr char kCharacterDevice[] = "1:7";  // /dev/full, which the boundary opens instead of uverbsN

// Writes below one folder, or only looks whether all that it would write is there (ENOENT: it is not). After
// the first error, all further work is skipped.
class TreeWriter {
 public:
  enum class Mode { kWrite, kLook };
  explicit TreeWriter(std::string root, Mode mode = Mode::kWrite) : root_(std::move(root)), mode_(mode) {}
  int error() const { return error_; }

  // Ignores the umask: a tree that its owner cannot read is useless.
  void folder(const std::string& path) {
    const std::string whole = root_ + "/" + path;
    if (mode_ == Mode::kLook) return look(whole, S_IFDIR);
    if (error_ == 0 && (mkdir(whole.c_str(), 0755) != 0 || chmod(whole.c_str(), 0755) != 0)) error_ = errno;
  }

  // One line, as every attribute of sysfs is.
  void line(const std::string& path, std::string_view text) { file(path, std::string(text) + "\n"); }

  __attribute__((format(printf, 3, 4))) void format(const std::string& path, const char* pattern, ...) {
    char text[256];
    va_list arguments;
    va_start(arguments, pattern);
    std::vsnprintf(text, sizeof text, pattern, arguments);
    va_end(arguments);
    line(path, text);
  }

  void link(const std::string& path, const std::string& target) {
    if (mode_ == Mode::kLook) return look(root_ + "/" + path, S_IFLNK);
    if (error_ == 0 && symlink(target.c_str(), (root_ + "/" + path).c_str()) != 0) error_ = errno;
  }

  void file(const std::string& path, std::string_view text) {
    if (error_ != 0) return;
    if (mode_ == Mode::kLook) return look(root_ + "/" + path, S_IFREG);
    const int fd =
        open((root_ + "/" + path).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0444);
    if (fd < 0) {
      error_ = errno;
      return;
    }
    while (!text.empty() && error_ == 0) {
      const ssize_t written = write(fd, text.data(), text.size());
      if (written >= 0)
        text.remove_prefix(static_cast<size_t>(written));
      else if (errno != EINTR)
        error_ = errno;
    }
    if (error_ == 0 && fchmod(fd, 0444) != 0) error_ = errno;
    close(fd);
  }

 private:
  void look(const std::string& whole, mode_t type) {
    struct stat status;
    if (error_ == 0 && (lstat(whole.c_str(), &status) != 0 || (status.st_mode & S_IFMT) != type))
      error_ = ENOENT;
  }

  std::string root_;
  Mode mode_;
  int error_ = 0;
};

std::string guid_text(uint64_t guid) {
  char text[24];
  std::snprintf(text, sizeof text, "%04x:%04x:%04x:%04x", static_cast<unsigned>(guid >> 48) & 0xffff,
                static_cast<unsigned>(guid >> 32) & 0xffff, static_cast<unsigned>(guid >> 16) & 0xffff,
                static_cast<unsigned>(guid) & 0xffff);
  return text;
}

std::string gid_text(const std::array<uint8_t, 16>& raw) {
  std::string text;
  for (unsigned i = 0; i < 16; i += 2) {
    char group[8];
    std::snprintf(group, sizeof group, "%s%02x%02x", i == 0 ? "" : ":", raw[i], raw[i + 1]);
    text += group;
  }
  return text;
}

// ib_cache_gid_type_str() in drivers/infiniband/core/cache.c; libibverbs compares these strings.
const char* gid_type_text(GidType type) { return type == GidType::kRoceV2 ? "RoCE v2" : "IB/RoCE v1"; }

std::string device_folder(const DeviceDescription& device) {
  return std::string("sys/class/infiniband/") + device.name.data();
}

std::string uverbs_name(uint32_t number) { return "uverbs" + std::to_string(number); }

void write_gids(TreeWriter& tree, const std::string& port, const PortDescription& description) {
  for (const char* folder : {"/gids", "/gid_attrs", "/gid_attrs/types", "/gid_attrs/ndevs"})
    tree.folder(port + folder);
  for (uint32_t i = 0; i < description.gid_count; ++i) {
    const GidEntry& gid = description.gids[i];
    const std::string name = "/" + std::to_string(i);
    tree.line(port + "/gids" + name, gid_text(gid.raw));
    tree.line(port + "/gid_attrs/types" + name, gid_type_text(gid.type));
    if (gid.interface_name[0] != 0)  // not on InfiniBand, where the kernel has no netdev to name
      tree.line(port + "/gid_attrs/ndevs" + name, gid.interface_name.data());
  }
}

std::string port_folder(const DeviceDescription& device, uint32_t port) {
  return device_folder(device) + "/ports/" + std::to_string(port);
}

void write_port(TreeWriter& tree, const DeviceDescription& device, uint32_t number) {
  const std::string port = port_folder(device, number);
  tree.folder(port);
  tree.line(port + "/state", "4: ACTIVE");
  tree.line(port + "/phys_state", "5: LinkUp");
  tree.format(port + "/lid", "0x%x", device.port(number).lid);
  tree.format(port + "/lid_mask_count", "%u", device.lmc);
  tree.line(port + "/sm_lid", "0x0");
  tree.line(port + "/sm_sl", "0");
  tree.line(port + "/rate", "200 Gb/sec (4X HDR)");
  const bool ethernet = device.link_layer == LinkLayer::kEthernet;
  tree.line(port + "/cap_mask", ethernet ? "0x04010000" : "0x00000000");  // IBV_PORT_CM_SUP, _IP_BASED_GIDS
  tree.line(port + "/link_layer", ethernet ? "Ethernet" : "InfiniBand");
  tree.folder(port + "/pkeys");
  for (uint32_t i = 0; i < device.pkey_count; ++i)
    tree.format(port + "/pkeys/" + std::to_string(i), "0x%04x", device.pkeys[i]);
  tree.folder(port + "/hw_counters");
  tree.line(port + "/hw_counters/lifespan", "0");  // milliseconds that a value is kept: each one is fresh
  for (const char* name : kHwCounterNames) tree.line(port + "/hw_counters/" + name, "0");
  tree.folder(port + "/counters");
  for (const char* name : kPmaCounterNames) tree.line(port + "/counters/" + name, "0");
  write_gids(tree, port, device.port(number));
}

// The netdev of a port. Tools look for its name in the folder device/net. "": none.
std::string netdev_of(const PortDescription& port) {
  return port.gid_count == 0 ? "" : port.gids[0].interface_name.data();
}

// dev_port is the port, from 0 (Documentation/ABI/testing/sysfs-class-net of Linux).
void write_netdevs(TreeWriter& tree, const std::string& folder, const DeviceDescription& device) {
  std::string before;
  for (uint32_t i = 0; i < device.count_ports(); ++i) {
    const std::string name = netdev_of(device.ports[i]);
    if (name.empty() || name == before) continue;
    if (before.empty()) tree.folder(folder + "/net");
    const std::string netdev = folder + "/net/" + name;
    tree.folder(netdev);
    tree.line(netdev + "/dev_id", "0x0");
    tree.format(netdev + "/dev_port", "%u", i);
    tree.format(netdev + "/ifindex", "%u", device.ports[i].gids[0].interface_index);
    before = name;
  }
}

// The parent device. It is on no bus, so there are no PCI entries. -1 is the kernel's value for "near no
// node".
void write_parent(TreeWriter& tree, const std::string& folder, const DeviceDescription& device,
                  uint32_t number) {
  const std::string name = device.name.data();
  tree.folder(folder);
  tree.line(folder + "/modalias", "verbena:adapter");
  tree.line(folder + "/numa_node", "-1");
  tree.line(folder + "/uevent", "MODALIAS=verbena:adapter");
  tree.folder(folder + "/infiniband");
  tree.link(folder + "/infiniband/" + name, "../../../" + name);
  tree.folder(folder + "/infiniband_verbs");
  tree.link(folder + "/infiniband_verbs/" + uverbs_name(number),
            "../../../../infiniband_verbs/" + uverbs_name(number));
  write_netdevs(tree, folder, device);
}

void write_device(TreeWriter& tree, const DeviceDescription& device, uint32_t number) {
  const std::string folder = device_folder(device);
  tree.folder(folder);
  tree.line(folder + "/node_type", "1: CA");
  tree.line(folder + "/node_guid", guid_text(device.node_guid));
  tree.line(folder + "/sys_image_guid", guid_text(device.node_guid));
  tree.line(folder + "/fw_ver", VERBENA_VERSION);
  tree.line(folder + "/hw_rev", "1");
  tree.line(folder + "/hca_type", "VERBENA");
  tree.line(folder + "/board_id", "VERBENA");
  tree.line(folder + "/node_desc", "Verbena RDMA adapter in software");
  tree.format(folder + "/uevent", "NAME=%s", device.name.data());
  tree.link(folder + "/subsystem", "../../infiniband");
  write_parent(tree, folder + "/device", device, number);
  tree.folder(folder + "/ports");
  for (uint32_t port = 1; port <= device.count_ports(); ++port) write_port(tree, device, port);
}

void write_uverbs(TreeWriter& tree, const DeviceDescription& device, uint32_t number) {
  const std::string name = uverbs_name(number);
  const std::string folder = "sys/class/infiniband_verbs/" + name;
  tree.folder(folder);
  tree.line(folder + "/ibdev", device.name.data());
  tree.line(folder + "/dev", kCharacterDevice);
  tree.line(folder + "/abi_version", "1");  // of the provider's commands
  tree.format(folder + "/uevent", "MAJOR=1\nMINOR=7\nDEVNAME=infiniband/%s\nDEVMODE=0666", name.c_str());
  tree.link(folder + "/device", std::string("../../infiniband/") + device.name.data() + "/device");
  tree.link(folder + "/subsystem", "../../infiniband_verbs");
  tree.file("dev/infiniband/" + name, "");
}

// As a misc device (drivers/infiniband/core/ucma.c, ucma_misc). Its number is that of the placeholder file,
// which stat(2) and fstat(2) report for it (boundary/hooks_stat.cc). The kernel would choose a free minor of
// 10.
void write_connection_manager(TreeWriter& tree) {
  const std::string folder = "sys/class/misc/rdma_cm";
  tree.folder("sys/class/misc");
  tree.folder(folder);
  tree.line(folder + "/abi_version", "4");  // RDMA_USER_CM_ABI_VERSION of <rdma/rdma_user_cm.h>
  tree.line(folder + "/dev", kCharacterDevice);
  tree.line(folder + "/uevent", "MAJOR=1\nMINOR=7\nDEVNAME=infiniband/rdma_cm\nDEVMODE=0666");
  tree.link(folder + "/subsystem", "../../misc");
  tree.file("dev/infiniband/rdma_cm", "");
}

void write_all(TreeWriter& tree, const DeviceTable& devices) {
  for (const char* path :
       {"sys", "sys/class", "sys/class/infiniband", "sys/class/infiniband_verbs", "dev", "dev/infiniband"})
    tree.folder(path);
  tree.line("sys/class/infiniband_verbs/abi_version", "6");  // IB_USER_VERBS_ABI_VERSION
  for (uint32_t i = 0; i < devices.count; ++i) {
    write_device(tree, devices.devices[i], devices.first_number + i);
    write_uverbs(tree, devices.devices[i], devices.first_number + i);
  }
  write_connection_manager(tree);
}

}  // namespace

int write_device_tree(const std::string& folder, const DeviceTable& devices) {
  if (devices.count > kMaxDevices) return EINVAL;
  TreeWriter tree(folder);
  write_all(tree, devices);
  return tree.error();
}

int show_port_state(const std::string& folder, const DeviceDescription& device, uint32_t number, bool down) {
  const std::string port = port_folder(device, number);
  // enum ib_port_state and ib_port_phys_state: mlx5 shows a link that is down as disabled, and so does this
  // tree.
  const std::pair<const char*, const char*> files[] = {{"/state", down ? "1: DOWN" : "4: ACTIVE"},
                                                       {"/phys_state", down ? "3: Disabled" : "5: LinkUp"}};
  for (const auto& [name, text] : files) {
    const std::string fresh = folder + "/port-state.new";
    unlink(fresh.c_str());
    TreeWriter tree(folder);
    tree.line("port-state.new", text);
    if (tree.error() != 0) return tree.error();
    if (rename(fresh.c_str(), (folder + "/" + port + name).c_str()) != 0) return errno;
  }
  return 0;
}

int show_counter(const std::string& folder, const DeviceDescription& device, uint32_t port,
                 const std::string& name, uint64_t value) {
  const std::string fresh = "counter." + std::to_string(gettid()) + ".new";
  TreeWriter tree(folder);
  unlink((folder + "/" + fresh).c_str());  // of a process with this number that was killed
  tree.line(fresh, std::to_string(value));
  if (tree.error() != 0) return tree.error();
  const std::string path = folder + "/" + port_folder(device, port) + "/" + name;
  return rename((folder + "/" + fresh).c_str(), path.c_str()) != 0 ? errno : 0;
}

bool device_tree_is_whole(const std::string& folder, const DeviceTable& devices) {
  TreeWriter tree(folder, TreeWriter::Mode::kLook);
  write_all(tree, devices);
  if (tree.error() != 0) return false;
  for (uint32_t i = 0; i < devices.count; ++i) {
    std::string version;
    std::getline(std::ifstream(folder + "/" + device_folder(devices.devices[i]) + "/fw_ver"), version);
    if (version != VERBENA_VERSION) return false;
  }
  return true;
}

}  // namespace verbena
