// SPDX-License-Identifier: BSD-2-Clause
//
// The facts about an ELF file that decide whether a library can be preloaded into it (elf(5)). The file is
// not trusted: every offset is checked.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace verbena::tool {

struct ElfFile {
  uint8_t elf_class = 0;  // ELFCLASS32, ELFCLASS64
  uint8_t data = 0;       // ELFDATA2LSB, ELFDATA2MSB
  uint16_t machine = 0;   // EM_*; read with the file's own byte order
  // Read only for files of this program's own class and byte order.
  std::string interpreter;            // PT_INTERP; "": it starts without ld.so
  std::vector<std::string> versions;  // symbol versions the library defines (SHT_GNU_verdef)
};

// 0; ENOEXEC: not an ELF file, or damaged; otherwise the errno of open(2) or read(2).
int read_elf(const std::string& path, ElfFile* out);

// The name of an EM_* number.
std::string machine_word(uint16_t machine);

}  // namespace verbena::tool
