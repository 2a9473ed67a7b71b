// SPDX-License-Identifier: BSD-2-Clause
#include "tool/output_file.h"

#include <errno.h>
#include <fcntl.h>

#include <fstream>

#include "fabric/descriptor.h"
#include "fabric/problem.h"

namespace verbena::tool {

bool can_write(const std::string& path, std::string* problem) {
  if (path.empty() || path == "-") return true;
  // A FIFO without a reader is waited for when it is written.
  const Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666));
  if (file.fd >= 0 || errno == ENXIO) return true;
  fail_errno(errno, problem, "cannot write to " + path);
  return false;
}

bool write_text(const std::string& path, const std::string& text, std::string* problem) {
  errno = 0;
  std::ofstream file(path);
  file << text;
  file.close();
  if (file) return true;
  fail_errno(errno != 0 ? errno : EIO, problem, "cannot write to " + path);
  return false;
}

}  // namespace verbena::tool
