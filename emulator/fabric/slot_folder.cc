// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/slot_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fabric/private_folder.h"
#include "fabric/slot_address.h"
#include "no_cancellation.h"

namespace verbena {
namespace {

int open_slots(const std::string& node, Descriptor* slots) {
  Descriptor root;
  if (const int error = open_private_folder(AT_FDCWD, node.c_str(), &root); error != 0) return error;
  return open_private_folder(root.fd, "slots", slots);
}

// The node's folder, made if it is missing.
int open_node_folder(const std::string& node, Descriptor* root) {
  int error = open_private_folder(AT_FDCWD, node.c_str(), root);
  if (error != ENOENT) return error;
  error = make_private_folder(node);
  if (error != 0 && error != EEXIST) return error;
  return open_private_folder(AT_FDCWD, node.c_str(), root);
}

}  // namespace

std::string slot_name(uint32_t slot, uint32_t generation) {
  return std::to_string(slot) + "." + std::to_string(generation);
}

std::string slot_folder(const std::string& node, uint32_t slot, uint32_t generation) {
  return node + "/slots/" + slot_name(slot, generation);
}

int open_slot_folder(const std::string& node, const std::string& name, Descriptor* folder) {
  const NoCancellation guard;
  Descriptor slots;
  if (const int error = open_slots(node, &slots); error != 0) return error;
  return open_private_folder(slots.fd, name.c_str(), folder);
}

int open_slot_folder(const SlotAddress& address, Descriptor* folder) {
  return open_slot_folder(address.node, address.name, folder);
}

int make_slot_folder(const std::string& node, const std::string& name) {
  const NoCancellation guard;
  Descriptor root, slots;
  if (const int error = open_node_folder(node, &root); error != 0) return error;
  if (const int error = make_private_folder_in(root.fd, "slots"); error != 0 && error != EEXIST) return error;
  if (const int error = open_private_folder(root.fd, "slots", &slots); error != 0) return error;
  return make_private_folder_in(slots.fd, name.c_str());
}

void remove_slot_folder(const std::string& node, const std::string& name) {
  const NoCancellation guard;
  Descriptor slots, folder;
  if (open_slots(node, &slots) != 0) return;
  if (open_private_folder(slots.fd, name.c_str(), &folder) != 0) return;
  const int readable = openat(folder.fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const listing = readable >= 0 ? fdopendir(readable) : nullptr;
  if (listing == nullptr) {
    if (readable >= 0) close(readable);
    return;
  }
  while (const dirent* entry = readdir(listing)) {
    struct stat status;
    if (fstatat(folder.fd, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (S_ISSOCK(status.st_mode) || S_ISFIFO(status.st_mode)) unlinkat(folder.fd, entry->d_name, 0);
  }
  closedir(listing);
  unlinkat(slots.fd, name.c_str(), AT_REMOVEDIR);
}

}  // namespace verbena
