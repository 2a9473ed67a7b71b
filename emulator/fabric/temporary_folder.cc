// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/temporary_folder.h"

#include <cstdlib>

namespace verbena {

std::string temporary_folder() {
  const char* folder = std::getenv("TMPDIR");
  return folder != nullptr && folder[0] == '/' ? folder : "/tmp";
}

}  // namespace verbena
