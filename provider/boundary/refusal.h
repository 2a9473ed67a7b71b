// SPDX-License-Identifier: BSD-2-Clause
//
// Which open(2) calls on the node's tree fail. The rules are those of the kernel's sysfs and devtmpfs.
#pragma once

#include <fcntl.h>

#include "boundary/kernel.h"
#include "boundary/redirect.h"

namespace verbena {

// The errno of open(2) with these flags. 0: allowed; the caller removes O_CREAT, O_EXCL and O_TRUNC. No
// file can be created in sysfs, and no file of the node's tree can be written. Both fail with EACCES, as
// for a read-only attribute.
inline int open_refusal(const Redirect& redirect, int flags) {
  if (redirect.place == Place::kLeft) return 0;
  if (redirect.error != 0)
    return redirect.error == ENOENT && (flags & O_CREAT) != 0 ? EACCES : redirect.error;
  if ((flags & O_PATH) != 0) return 0;
  constexpr int kMakeNew = O_CREAT | O_EXCL;
  if (redirect.is_device()) return (flags & kMakeNew) == kMakeNew ? EEXIST : 0;

  const bool writes = (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC) != 0;
  if (!writes && (flags & O_CREAT) == 0) return 0;
  struct stat status;
  if (const long error = -kernel::status(redirect.path, &status); error != 0)
    return error == ENOENT && (flags & O_CREAT) != 0 ? EACCES : static_cast<int>(error);
  if ((flags & kMakeNew) == kMakeNew) return EEXIST;
  if (!writes) return 0;
  return S_ISDIR(status.st_mode) ? EISDIR : EACCES;
}

}  // namespace verbena
