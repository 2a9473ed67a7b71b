// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <string>

namespace verbena {

// $TMPDIR if it is an absolute path, else /tmp.
std::string temporary_folder();

}  // namespace verbena
