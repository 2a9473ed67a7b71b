// SPDX-License-Identifier: BSD-2-Clause
//
// Folders of this user alone. One uid is one trust domain: what another user owns or can write to is neither
// read, nor written, nor removed. A folder counts as this user's if it is a directory, not a symbolic link,
// owned by the effective uid, with mode 0700.
#pragma once

#include <fcntl.h>

#include <string>

#include "fabric/descriptor.h"

namespace verbena {

// 0; EPERM: the folder is not this user's alone; or the errno of lstat(2). *problem says it in one line.
int check_private_folder(const std::string& path, std::string* problem);

// Creates `path` with mode 0700, whatever the umask, unless it exists; then as check_private_folder().
int ensure_private_folder(const std::string& path, std::string* problem);

// Creates `name`, relative to the folder `at`, with mode 0700, whatever the umask. EEXIST, or another errno.
int make_private_folder_in(int at, const char* name);
inline int make_private_folder(const std::string& path) {
  return make_private_folder_in(AT_FDCWD, path.c_str());
}

// Opens `name`, relative to the folder `at`, for openat(2) and its kind (O_PATH). The descriptor is meant for
// a few calls and not for keeping: a program closes descriptors that it does not own.
// 0; EPERM: not this user's alone; or the errno of openat(2).
int open_private_folder(int at, const char* name, Descriptor* folder);

}  // namespace verbena
