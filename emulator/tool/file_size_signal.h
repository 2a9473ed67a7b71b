// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <signal.h>

namespace verbena::tool {

// During its lifetime a file above RLIMIT_FSIZE is an error (EFBIG) that can be reported, and does not kill
// the process (SIGXFSZ, setrlimit(2)).
class FileSizeSignalIgnored {
 public:
  FileSizeSignalIgnored() {
    struct sigaction ignore {};
    ignore.sa_handler = SIG_IGN;
    sigaction(SIGXFSZ, &ignore, &before_);
  }
  ~FileSizeSignalIgnored() { sigaction(SIGXFSZ, &before_, nullptr); }
  FileSizeSignalIgnored(const FileSizeSignalIgnored&) = delete;
  FileSizeSignalIgnored& operator=(const FileSizeSignalIgnored&) = delete;

 private:
  struct sigaction before_ {};
};

}  // namespace verbena::tool
