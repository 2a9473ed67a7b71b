// SPDX-License-Identifier: BSD-2-Clause
#include "tool/interpreter.h"

#include <cstring>
#include <fstream>

#include "tool/elf_file.h"

namespace verbena::tool {

std::string script_interpreter(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  char start[2] = {};
  std::string line;
  if (!file.read(start, 2) || std::memcmp(start, "#!", 2) != 0 || !std::getline(file, line)) return "";
  const size_t from = line.find_first_not_of(" \t");
  if (from == std::string::npos) return "";
  return line.substr(from, line.find_first_of(" \t\r", from) - from);
}

std::string interpreter_of(const std::string& path) {
  if (const std::string interpreter = script_interpreter(path); !interpreter.empty()) return interpreter;
  ElfFile elf;
  return read_elf(path, &elf) == 0 ? elf.interpreter : "";
}

}  // namespace verbena::tool
