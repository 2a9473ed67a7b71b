// SPDX-License-Identifier: BSD-2-Clause
#include "tool/rdma_libraries.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <cstring>

namespace verbena::tool {
namespace {

constexpr const char* kPublicVersion = "IBVERBS_";
constexpr const char* kPrivateVersion = "IBVERBS_PRIVATE_";

bool begins_with(const std::string& text, const char* start) { return text.rfind(start, 0) == 0; }

}  // namespace

std::string locate_library(const char* name, std::string* problem) {
  void* handle = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
  if (handle == nullptr) {
    *problem = dlerror();
    return "";
  }
  const link_map* map = nullptr;
  std::string path;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr) path = map->l_name;
  dlclose(handle);
  return path;
}

std::string provider_abi(const ElfFile& library) {
  for (const std::string& version : library.versions)
    if (begins_with(version, kPrivateVersion)) return version.substr(std::strlen(kPrivateVersion));
  return "";
}

// The versions are defined in order, the newest last.
std::string latest_version(const ElfFile& library) {
  std::string latest = "no public symbol versions";
  for (const std::string& version : library.versions)
    if (begins_with(version, kPublicVersion) && !begins_with(version, kPrivateVersion)) latest = version;
  return latest;
}

std::string provider_path(const Installation& installation, const std::string& abi) {
  return installation.driver + "-rdmav" + abi + ".so";
}

std::string unknown_rdma_core(const Installation& installation) {
  if (access((installation.driver + "-provider.so").c_str(), R_OK) != 0) return "";
  std::string problem;
  const std::string library = locate_library("libibverbs.so.1", &problem);
  ElfFile elf;
  if (library.empty() || read_elf(library, &elf) != 0) return "";
  const std::string abi = provider_abi(elf);
  if (abi.empty() || access(provider_path(installation, abi).c_str(), R_OK) == 0) return "";
  return library + " has the provider ABI " + abi +
         ", which this Verbena does not know, so that programs find no device: install a newer Verbena, or "
         "put "
         "the libraries of rdma-core 28 to 64 first in LD_LIBRARY_PATH";
}

}  // namespace verbena::tool
