// SPDX-License-Identifier: BSD-2-Clause
#include "support/stack.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <rdma/rdma_cma.h>
#include <string.h>

#include <filesystem>
#include <fstream>

namespace conformance {
namespace {

namespace fs = std::filesystem;

// The build id of the loaded object with this first address; elf(5), NT_GNU_BUILD_ID.
struct BuildId {
  uintptr_t base;
  std::string text;
};

std::string build_id_in(const char* at, size_t size) {
  for (const char* end = at + size; at + sizeof(ElfW(Nhdr)) <= end;) {
    ElfW(Nhdr) note;
    memcpy(&note, at, sizeof note);
    const size_t name = (note.n_namesz + 3u) & ~size_t{3}, value = (note.n_descsz + 3u) & ~size_t{3};
    if (name + value > static_cast<size_t>(end - at) - sizeof note) break;
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && memcmp(at + sizeof note, "GNU", 4) == 0) {
      std::string out;
      for (size_t i = 0; i < note.n_descsz; ++i) {
        char byte[3];
        snprintf(byte, sizeof byte, "%02x", static_cast<unsigned char>(at[sizeof note + name + i]));
        out += byte;
      }
      return out;
    }
    at += sizeof note + name + value;
  }
  return {};
}

int find_build_id(dl_phdr_info* object, size_t, void* to) {
  BuildId& wanted = *static_cast<BuildId*>(to);
  bool is_it = false;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const auto& header = object->dlpi_phdr[i];
    const uintptr_t begin = object->dlpi_addr + header.p_vaddr;
    is_it |= header.p_type == PT_LOAD && wanted.base >= begin && wanted.base < begin + header.p_memsz;
  }
  if (!is_it) return 0;
  for (int i = 0; i < object->dlpi_phnum && wanted.text.empty(); ++i) {
    const auto& header = object->dlpi_phdr[i];
    if (header.p_type != PT_NOTE) continue;
    // An address of the loader's, as dl_iterate_phdr(3) gives it.
    const auto* notes = reinterpret_cast<const char*>(object->dlpi_addr + header.p_vaddr);  // NOLINT
    wanted.text = build_id_in(notes, header.p_memsz);
  }
  return 1;
}

// The file that a function comes from, without its folder, with links followed.
std::string file_of(const void* function) {
  Dl_info info = {};
  if (function == nullptr || dladdr(function, &info) == 0 || info.dli_fname == nullptr) return "unknown";
  std::error_code error;
  const fs::path path = fs::canonical(info.dli_fname, error);
  return (error ? fs::path(info.dli_fname) : path).filename();
}

std::string library_of(const void* function) {
  BuildId id{reinterpret_cast<uintptr_t>(function), {}};
  if (function != nullptr) dl_iterate_phdr(find_build_id, &id);
  return file_of(function) + (id.text.empty() ? "" : ", build id " + id.text);
}

// libibverbs.so.1.14.44.0 is that of rdma-core 44.0: rdma_library(ibverbs ... 1.14.${PACKAGE_VERSION}) in
// rdma-core's libibverbs/CMakeLists.txt.
std::string rdma_core_of(const std::string& file) {
  const size_t first = file.find(".so.");
  if (first == std::string::npos) return "unknown";
  size_t at = first + 3;
  for (int part = 0; part < 2 && at != std::string::npos; ++part) at = file.find('.', at + 1);
  return at == std::string::npos ? "unknown" : file.substr(at + 1);
}

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// What commands are written to: a character device of the kernel's uverbs, or not.
std::string command_file_of(int descriptor) {
  std::error_code error;
  const fs::path path = fs::read_symlink("/proc/self/fd/" + std::to_string(descriptor), error);
  return error ? "unknown" : path.string();
}

template <typename Function>
const void* address(Function* function) {
  return reinterpret_cast<const void*>(function);
}

}  // namespace

// A function of the provider, as <infiniband/verbs.h> calls it.
std::string provider_file(const Device& device) {
  Dl_info info = {};
  const void* const function = address(device.context()->ops.poll_cq);
  return function == nullptr || dladdr(function, &info) == 0 || info.dli_fname == nullptr ? ""
                                                                                          : info.dli_fname;
}

Facts stack_of(const Device& device) {
  const ibv_context* context = device.context();
  std::error_code error;
  // Documentation/ABI/stable/sysfs-class-infiniband: `device` is the parent, which a virtual device does not
  // have.
  const fs::path parent = fs::path(context->device->ibdev_path) / "device";
  const fs::path driver = fs::read_symlink(parent / "driver", error);
  const std::string version = first_line(parent / "driver/module/version");
  const char* firmware = device.attributes().fw_ver;
  const std::string ibverbs = file_of(address(&ibv_get_device_list));
  return {{"driver", error ? "unknown (a device without a parent in sysfs)" : driver.filename().string()},
          {"driver_version", version.empty() ? "of the kernel" : version},
          {"firmware", std::string(firmware, strnlen(firmware, sizeof device.attributes().fw_ver))},
          {"command_file", command_file_of(context->cmd_fd)},
          {"rdma_core", rdma_core_of(ibverbs)},
          {"libibverbs", library_of(address(&ibv_get_device_list))},
          {"librdmacm", library_of(address(&rdma_create_id))},
          {"provider", library_of(address(context->ops.poll_cq))}};
}

}  // namespace conformance
