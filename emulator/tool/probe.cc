// SPDX-License-Identifier: BSD-2-Clause
//
// verbena probe: a small verbs program, for the doctor. Not in the help.
#include <dlfcn.h>
#include <infiniband/verbs.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "tool/command.h"

namespace verbena::tool {
namespace {

template <typename Function>
Function find(void* library, const char* name) {
  return reinterpret_cast<Function>(dlsym(library, name));
}

// libibverbs is looked up at run time, so that the command starts where it is missing.
int probe() {
  void* library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) return failed(dlerror());
  const auto get_list = find<ibv_device** (*)(int*)>(library, "ibv_get_device_list");
  const auto get_name = find<const char* (*)(ibv_device*)>(library, "ibv_get_device_name");
  const auto open = find<ibv_context* (*)(ibv_device*)>(library, "ibv_open_device");
  const auto close = find<int (*)(ibv_context*)>(library, "ibv_close_device");
  if (get_list == nullptr || get_name == nullptr || open == nullptr || close == nullptr)
    return failed("libibverbs.so.1 lacks the most common functions");
  int count = 0;
  ibv_device** devices = get_list(&count);
  if (devices == nullptr) return failed(std::string("no list of devices: ") + std::strerror(errno));
  for (int i = 0; i < count; ++i) {
    const char* name = get_name(devices[i]);
    if (std::strncmp(name, "verbena", 7) != 0) continue;
    ibv_context* context = open(devices[i]);
    if (context == nullptr) return failed(std::string(name) + " cannot be opened: " + std::strerror(errno));
    close(context);
    std::printf("finds %s and opens it\n", name);
    return 0;
  }
  return failed("none of " + std::to_string(count) + " devices is Verbena's");
}

}  // namespace

void add_probe(CLI::App& app, CommandLine& line) {
  CLI::App* command = app.add_subcommand("probe", "open the device as a program does");
  command->group("");
  command->callback([&line] { line.action = probe; });
}

}  // namespace verbena::tool
