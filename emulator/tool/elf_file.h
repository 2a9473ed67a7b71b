// SPDX-License-Identifier: BSD-2-Clause
//
// The few facts about an ELF file that decide whether anything can be preloaded into it (elf(5)). Reads files
// that may be anything: every offset is checked.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace verbena::tool {

struct ElfFile {
  uint8_t elf_class = 0;  // ELFCLASS32, ELFCLASS64
  uint8_t data = 0;       // ELFDATA2LSB, ELFDATA2MSB
  uint16_t machine = 0;   // EM_*; read with the file's own byte order
  // The rest is read for files of this program's own class and byte order only.
  std::string interpreter;            // PT_INTERP; "": the kernel starts it without ld.so
  std::vector<std::string> versions;  // symbol versions the library defines (SHT_GNU_verdef)
};

// 0; ENOEXEC: not an ELF file, or damaged; else what open(2) and read(2) say.
int read_elf(const std::string& path, ElfFile* out);

std::string machine_word(uint16_t machine);

}  // namespace verbena::tool
