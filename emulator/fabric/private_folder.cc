// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/private_folder.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>

#include "fabric/problem.h"

namespace verbena {
namespace {

constexpr mode_t kPrivate = 0700;

bool is_private(const struct stat& status) {
  return S_ISDIR(status.st_mode) && status.st_uid == geteuid() && (status.st_mode & 07777) == kPrivate;
}

}  // namespace

int check_private_folder(const std::string& path, std::string* problem) {
  struct stat status;
  if (lstat(path.c_str(), &status) != 0) return fail_errno(errno, problem, path);
  if (is_private(status)) return 0;
  if (!S_ISDIR(status.st_mode)) return fail(EPERM, problem, path + " is not a directory");
  if (status.st_uid != geteuid())
    return fail(EPERM, problem,
                path + " belongs to uid " + std::to_string(status.st_uid) + ", not to uid " +
                    std::to_string(geteuid()));
  char mode[8];
  std::snprintf(mode, sizeof mode, "%04o", static_cast<unsigned>(status.st_mode & 07777));
  return fail(EPERM, problem, path + " has mode " + mode + ", not 0700");
}

int make_private_folder_in(int at, const char* name) {
  if (mkdirat(at, name, kPrivate) != 0) return errno;
  return fchmodat(at, name, kPrivate, 0) == 0 ? 0 : errno;
}

int ensure_private_folder(const std::string& path, std::string* problem) {
  if (const int error = make_private_folder(path); error != 0 && error != EEXIST)
    return fail(error, problem,
                "cannot make " + path + ": " + std::strerror(error) +
                    " (XDG_RUNTIME_DIR or TMPDIR names another folder)");
  return check_private_folder(path, problem);
}

int open_private_folder(int at, const char* name, Descriptor* folder) {
  Descriptor opened{openat(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
  // With O_DIRECTORY a symbolic link is ENOTDIR, as any other file.
  if (opened.fd < 0) return errno == ENOTDIR || errno == ELOOP ? EPERM : errno;
  struct stat status;
  if (fstat(opened.fd, &status) != 0) return errno;
  if (!is_private(status)) return EPERM;
  folder->reset(opened.release());
  return 0;
}

}  // namespace verbena
