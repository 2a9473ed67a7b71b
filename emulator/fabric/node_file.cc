// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/node_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <memory>

#include "fabric/private_folder.h"

namespace verbena {
namespace {

using Listing = std::unique_ptr<DIR, int (*)(DIR*)>;

std::string target_of(const std::string& link) {
  char text[PATH_MAX + 16];
  const ssize_t size = readlink(link.c_str(), text, sizeof text);
  return size > 0 ? std::string(text, static_cast<size_t>(size)) : std::string();
}

// The kernel's spelling of `path`, whose last components may not exist any more.
std::string without_links(const std::string& path) {
  std::string there = path, gone;
  for (;;) {
    char resolved[PATH_MAX];
    if (realpath(there.c_str(), resolved) != nullptr)
      return (gone.empty() || std::string(resolved) != "/" ? resolved : std::string()) + gone;
    const size_t slash = there.rfind('/');
    if (slash == std::string::npos || slash == 0) return path;
    gone = there.substr(slash) + gone;
    there.resize(slash);
  }
}

bool is_number(const char* name) {
  for (const char* at = name; *at != 0; ++at)
    if (std::isdigit(static_cast<unsigned char>(*at)) == 0) return false;
  return *name != 0;
}

bool is_own(const std::string& process) {
  struct stat status;
  return stat(process.c_str(), &status) == 0 && status.st_uid == geteuid();
}

// Opens the descriptor of that process whose file had the name before it was deleted.
bool open_of_process(const std::string& process, const std::string& wanted, Descriptor* file) {
  const Listing listing{opendir((process + "/fd").c_str()), closedir};
  if (listing == nullptr) return false;
  while (const dirent* entry = readdir(listing.get())) {
    const std::string link = process + "/fd/" + entry->d_name;
    if (target_of(link) != wanted) continue;
    Descriptor opened{open(link.c_str(), O_RDWR | O_CLOEXEC)};
    struct stat status;
    if (opened.fd < 0 || fstat(opened.fd, &status) != 0 || !S_ISREG(status.st_mode) ||
        status.st_uid != geteuid() || status.st_nlink != 0)
      continue;
    file->reset(opened.release());
    return true;
  }
  return false;
}

int open_deleted(const std::string& path, Descriptor* file) {
  const std::string wanted = without_links(path) + " (deleted)";
  const std::string mounts = target_of("/proc/self/ns/mnt");
  const Listing processes{opendir("/proc"), closedir};
  if (processes == nullptr) return ENOENT;
  while (const dirent* entry = readdir(processes.get())) {
    if (!is_number(entry->d_name)) continue;
    const std::string process = std::string("/proc/") + entry->d_name;
    // Elsewhere the same path is another file's.
    if (is_own(process) && target_of(process + "/ns/mnt") == mounts && open_of_process(process, wanted, file))
      return 0;
  }
  return ENOENT;
}

int open_by_name(const std::string& path, Descriptor* file) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos || slash == 0) return EINVAL;
  Descriptor folder;
  if (int error = open_private_folder(AT_FDCWD, path.substr(0, slash).c_str(), &folder); error != 0)
    return error;
  file->reset(openat(folder.fd, path.c_str() + slash + 1, O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  return file->fd >= 0 ? 0 : errno;
}

}  // namespace

int open_node_file(const std::string& path, Descriptor* file) {
  const int error = open_by_name(path, file);
  return error == ENOENT ? open_deleted(path, file) : error;
}

bool has_name(int file, const std::string& path) {
  struct stat own, there;
  return fstat(file, &own) == 0 && lstat(path.c_str(), &there) == 0 && own.st_dev == there.st_dev &&
         own.st_ino == there.st_ino;
}

}  // namespace verbena
