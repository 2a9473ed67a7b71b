// SPDX-License-Identifier: BSD-2-Clause
#include "boundary/redirect.h"

#include "boundary/kernel.h"

namespace verbena {
namespace {

size_t copy(const char* from, char* to, size_t capacity) {
  size_t length = 0;
  while (from[length] != 0 && length + 1 < capacity) {
    to[length] = from[length];
    ++length;
  }
  to[length] = 0;
  return length;
}

// Asks the kernel for the path of `folder`, where a relative path starts. Returns its length. 0: unknown.
size_t folder_path(int folder, char* out, size_t capacity) {
  if (folder == AT_FDCWD) {
    const long size = kernel::current_directory(out, capacity);  // includes the final zero
    return size > 1 && out[0] == '/' ? static_cast<size_t>(size - 1) : 0;
  }
  char link[] = "/proc/self/fd/0000000000";
  constexpr size_t kDigits = sizeof "/proc/self/fd/" - 1;
  size_t end = kDigits;
  for (int rest = folder; rest > 0 || end == kDigits; rest /= 10) ++end;
  link[end] = 0;
  for (int rest = folder; end > kDigits; rest /= 10) link[--end] = static_cast<char>('0' + rest % 10);
  const long size = kernel::read_link(link, out, capacity - 1);
  if (size <= 0 || out[0] != '/') return 0;
  out[size] = 0;
  return static_cast<size_t>(size);
}

// Is this open folder (or AT_FDCWD) the folder `name` of the node's tree?
bool is_folder_of_node(int folder, const char* name) {
  char path[PATH_MAX + 32];
  const NodeRoot node = node_root();
  size_t length = copy(node.path, path, sizeof path);
  copy(name, path + length, sizeof path - length);
  struct stat wanted;
  struct stat found;
  if (kernel::status(path, &wanted) != 0) return false;
  if ((folder == AT_FDCWD ? kernel::status(".", &found) : kernel::status(folder, &found)) != 0) return false;
  return wanted.st_dev == found.st_dev && wanted.st_ino == found.st_ino;
}

// Makes the absolute path of `path`, which is relative to `folder`. False: the path of `folder` is
// unknown, or the result is too long. The path is then not redirected.
bool make_absolute(int folder, const char* path, char* out, size_t capacity) {
  size_t length;
  if (is_device_name(path) && is_device_folder(folder))
    length = copy("/dev/infiniband", out, capacity);
  else
    length = folder_path(folder, out, capacity);
  if (length == 0 || length + 2 > capacity) return false;
  out[length++] = '/';
  const size_t added = copy(path, out + length, capacity - length);
  return path[added] == 0;
}

}  // namespace

bool is_device_folder(int folder) { return is_folder_of_node(folder, "/dev/infiniband"); }

bool is_class_folder(int folder) {
  return is_folder_of_node(folder, "/sys/class/infiniband_verbs") ||
         is_folder_of_node(folder, "/sys/class/infiniband");
}

bool find_redirect(int folder, const char* path, Redirect* out) {
  const NodeRoot node = node_root();
  if (node.path == nullptr) return false;
  char absolute[PATH_MAX];
  if (path[0] != '/') {
    if (!make_absolute(folder, path, absolute, sizeof absolute)) return false;
    path = absolute;
  }
  out->place = judge_path(node.path, node.length, path, out->path, sizeof out->path);
  out->error = 0;
  if (out->place == Place::kElsewhere) return false;
  if (is_beside_machine() && out->place != Place::kLeft && out->place != Place::kTooLong &&
      kernel::exists(out->path) != 0)
    return false;
  if (out->place == Place::kTooLong) out->error = ENAMETOOLONG;
  if (out->is_device()) out->error = static_cast<int>(-kernel::exists(out->path));
  return true;
}

size_t hide_node_root(char* text, size_t length) {
  const NodeRoot node = node_root();
  if (node.path == nullptr) return length;
  // `text` is from the kernel and has the root without symbolic links. VERBENA_NODE may contain some.
  char root[PATH_MAX];
  size_t root_length = 0;
  const int fd =
      static_cast<int>(kernel::ask(SYS_openat, AT_FDCWD, node.path, O_PATH | O_DIRECTORY | O_CLOEXEC, 0));
  if (fd < 0) return length;
  root_length = folder_path(fd, root, sizeof root);
  kernel::ask(SYS_close, fd);
  if (root_length == 0 || length <= root_length || text[root_length] != '/') return length;
  for (size_t i = 0; i < root_length; ++i)
    if (text[i] != root[i]) return length;
  for (size_t i = root_length; i < length; ++i) text[i - root_length] = text[i];
  return length - root_length;
}

}  // namespace verbena
