// SPDX-License-Identifier: BSD-2-Clause
#include "tool/elf_file.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cstddef>
#include <cstring>

namespace verbena::tool {
namespace {

constexpr uint8_t kOwnClass = sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32;
constexpr uint8_t kOwnData = std::endian::native == std::endian::little ? ELFDATA2LSB : ELFDATA2MSB;
constexpr size_t kLongestString = 4096;

class Reader {
 public:
  explicit Reader(int fd) : fd_(fd) {}
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  ~Reader() { close(fd_); }

  bool bytes(uint64_t offset, void* to, size_t size) const {
    return offset <= INT64_MAX - size &&
           pread(fd_, to, size, static_cast<off_t>(offset)) == static_cast<ssize_t>(size);
  }
  template <typename T>
  bool object(uint64_t offset, T* to) const {
    return bytes(offset, to, sizeof *to);
  }
  std::string text(uint64_t offset) const {
    char buffer[kLongestString];
    if (offset > INT64_MAX) return "";
    const ssize_t got = pread(fd_, buffer, sizeof buffer, static_cast<off_t>(offset));
    return got <= 0 ? "" : std::string(buffer, strnlen(buffer, static_cast<size_t>(got)));
  }

 private:
  int fd_;
};

void read_interpreter(const Reader& file, const ElfW(Ehdr) & header, ElfFile* out) {
  for (uint64_t i = 0; i < header.e_phnum; ++i) {
    ElfW(Phdr) segment;
    if (!file.object(header.e_phoff + i * sizeof segment, &segment)) return;
    if (segment.p_type == PT_INTERP) out->interpreter = file.text(segment.p_offset);
  }
}

// A chain of definitions, each with a chain of names. The first name is that of the definition itself.
void read_versions(const Reader& file, uint64_t definitions, uint64_t count, uint64_t strings, ElfFile* out) {
  for (uint64_t i = 0; i < count; ++i) {
    ElfW(Verdef) definition;
    ElfW(Verdaux) name;
    if (!file.object(definitions, &definition) || !file.object(definitions + definition.vd_aux, &name))
      return;
    out->versions.push_back(file.text(strings + name.vda_name));
    if (definition.vd_next == 0) return;
    definitions += definition.vd_next;
  }
}

void read_sections(const Reader& file, const ElfW(Ehdr) & header, ElfFile* out) {
  for (uint64_t i = 0; i < header.e_shnum; ++i) {
    ElfW(Shdr) section;
    ElfW(Shdr) strings;
    if (!file.object(header.e_shoff + i * sizeof section, &section)) return;
    if (section.sh_type != SHT_GNU_verdef || section.sh_link >= header.e_shnum) continue;
    if (!file.object(header.e_shoff + section.sh_link * sizeof strings, &strings)) return;
    read_versions(file, section.sh_offset, section.sh_info, strings.sh_offset, out);
  }
}

}  // namespace

int read_elf(const std::string& path, ElfFile* out) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return errno;
  const Reader file(fd);
  unsigned char ident[EI_NIDENT];
  unsigned char machine[2];
  if (!file.bytes(0, ident, sizeof ident) || std::memcmp(ident, ELFMAG, SELFMAG) != 0 ||
      !file.bytes(offsetof(Elf64_Ehdr, e_machine), machine, sizeof machine))
    return ENOEXEC;
  out->elf_class = ident[EI_CLASS];
  out->data = ident[EI_DATA];
  const unsigned low = out->data == ELFDATA2LSB ? 0 : 1;
  out->machine = static_cast<uint16_t>(machine[low] | machine[1 - low] << 8);
  if (out->elf_class != kOwnClass || out->data != kOwnData) return 0;
  ElfW(Ehdr) header;
  if (!file.object(0, &header)) return ENOEXEC;
  if (header.e_phentsize == sizeof(ElfW(Phdr))) read_interpreter(file, header, out);
  if (header.e_shentsize == sizeof(ElfW(Shdr))) read_sections(file, header, out);
  return 0;
}

std::string machine_word(uint16_t machine) {
  constexpr struct {
    uint16_t number;
    const char* word;
  } kMachines[] = {{EM_386, "i386"},    {EM_X86_64, "x86-64"}, {EM_ARM, "ARM"},     {EM_AARCH64, "aarch64"},
                   {EM_PPC64, "POWER"}, {EM_S390, "S/390"},    {EM_RISCV, "RISC-V"}};
  for (const auto& known : kMachines)
    if (known.number == machine) return known.word;
  return "machine " + std::to_string(machine);
}

}  // namespace verbena::tool
