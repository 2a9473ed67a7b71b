// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/node_build.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "fabric/descriptor.h"
#include "fabric/device_tree.h"
#include "fabric/node.h"
#include "fabric/node_directory.h"
#include "fabric/node_removal.h"
#include "fabric/private_folder.h"
#include "fabric/problem.h"

namespace verbena {
namespace {

int write_node_key(const std::string& node, const NetworkKey& key) {
  const Descriptor file(open(key_path(node).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (file.fd < 0) return errno;
  if (fchmod(file.fd, 0600) != 0) return errno;
  return write(file.fd, key.data(), key.size()) == static_cast<ssize_t>(key.size()) ? 0 : EIO;
}

int unless_there(int error) { return error == EEXIST ? 0 : error; }

int swap_names(const std::string& fresh, const std::string& place) {
  if (access(place.c_str(), F_OK) != 0) return rename(fresh.c_str(), place.c_str()) == 0 ? 0 : errno;
  return exchange_nodes(fresh, place);
}

// Puts a whole device tree in the place of a damaged one. A reader finds the one or the other meanwhile.
int mend_tree(const std::string& node, const NodeDirectory& directory) {
  const DeviceTable& devices = directory.devices();
  if (device_tree_is_whole(node, devices)) return 0;
  const std::string fresh = passing_name(node, ".new");
  int error = make_private_folder(fresh);
  if (error == 0) error = write_device_tree(fresh, devices);
  for (uint32_t i = 0; i < devices.count && error == 0; ++i)
    for (uint32_t port = 1; port <= devices.devices[i].count_ports() && error == 0; ++port)
      if (directory.events(i).port_down(port)) error = show_port_state(fresh, devices.devices[i], port, true);
  if (error == 0) error = swap_names(fresh + "/dev", node + "/dev");
  if (error == 0) error = swap_names(fresh + "/sys", node + "/sys");
  delete_folder(fresh);
  return error;
}

}  // namespace

NetworkKey read_node_key(const std::string& node) {
  NetworkKey key{};
  const Descriptor file(open(key_path(node).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (file.fd < 0 || read(file.fd, key.data(), key.size()) != static_cast<ssize_t>(key.size())) return {};
  return key;
}

int build_node(const std::string& folder, const DeviceTable& devices, const NetworkKey& key,
               std::string* problem) {
  int error = make_private_folder(folder);
  if (error == 0 && has_key(devices.network)) error = write_node_key(folder, key);
  if (error == 0) error = make_private_folder(folder + "/slots");
  if (error == 0) error = write_device_tree(folder, devices);
  if (error == 0) error = NodeDirectory::create(directory_path(folder).c_str(), devices);
  if (error == 0 && chmod(directory_path(folder).c_str(), 0600) != 0) error = errno;
  if (error == 0) return 0;
  return fail(
      error, problem,
      "cannot build the node in " + folder + ": " + std::strerror(error) +
          (error == EFBIG ? " (raise ulimit -f)" : " (XDG_RUNTIME_DIR or TMPDIR names another folder)"));
}

int mend_node(const std::string& node, const NodeDirectory& directory, const NetworkKey& key,
              std::string* problem) {
  int error = unless_there(make_private_folder(node));
  if (error == 0) error = unless_there(make_private_folder(node + "/slots"));
  if (error == 0) error = mend_tree(node, directory);
  if (error == 0 && has_key(directory.devices().network) && key != NetworkKey{})
    error = unless_there(write_node_key(node, key));
  return error == 0 ? 0 : fail_errno(error, problem, "cannot mend the node at " + node);
}

int exchange_nodes(const std::string& fresh, const std::string& node) {
  if (renameat2(AT_FDCWD, fresh.c_str(), AT_FDCWD, node.c_str(), RENAME_EXCHANGE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return errno;
  // On a file system without RENAME_EXCHANGE there is none for a moment.
  const std::string aside = passing_name(fresh.substr(0, fresh.rfind('/')), ".gone");
  if (rename(node.c_str(), aside.c_str()) != 0 || rename(fresh.c_str(), node.c_str()) != 0) return errno;
  return rename(aside.c_str(), fresh.c_str()) == 0 ? 0 : errno;
}

}  // namespace verbena
