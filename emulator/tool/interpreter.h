// SPDX-License-Identifier: BSD-2-Clause
//
// By what the kernel runs a file (execve(2)).
#pragma once

#include <string>

namespace verbena::tool {

// The interpreter of a script; "" for any other file.
std::string script_interpreter(const std::string& path);

// That, or the loader of a dynamic ELF program; "": the file needs none, or cannot be read.
std::string interpreter_of(const std::string& path);

}  // namespace verbena::tool
