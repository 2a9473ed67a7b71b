// SPDX-License-Identifier: BSD-2-Clause
//
// verbena probe [rdma_cm]: a small program for the doctor, which uses verbs or the connection manager. Not in
// the help.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>

#include "tool/command.h"

namespace verbena::tool {
namespace {

template <typename Function>
Function find(void* library, const char* name) {
  return reinterpret_cast<Function>(dlsym(library, name));
}

// libibverbs is loaded at run time, so that the command also starts where it is missing.
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

// The ABI version as librdmacm reads it; "" if there is none.
std::string manager_abi() {
  const char* sysfs = std::getenv("SYSFS_PATH");
  std::ifstream file(std::string(sysfs != nullptr ? sysfs : "/sys") + "/class/misc/rdma_cm/abi_version");
  std::string version;
  std::getline(file, version);
  return version;
}

// Listens on a port of the loopback address. This needs the device file and most of what is behind it.
int probe_manager() {
  void* library = dlopen("librdmacm.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) return failed(dlerror());
  const auto create_channel =
      find<decltype(&rdma_create_event_channel)>(library, "rdma_create_event_channel");
  const auto destroy_channel =
      find<decltype(&rdma_destroy_event_channel)>(library, "rdma_destroy_event_channel");
  const auto create_id = find<decltype(&rdma_create_id)>(library, "rdma_create_id");
  const auto destroy_id = find<decltype(&rdma_destroy_id)>(library, "rdma_destroy_id");
  const auto bind = find<decltype(&rdma_bind_addr)>(library, "rdma_bind_addr");
  const auto listen = find<decltype(&rdma_listen)>(library, "rdma_listen");
  const auto port_of = find<decltype(&rdma_get_src_port)>(library, "rdma_get_src_port");
  if (create_channel == nullptr || destroy_channel == nullptr || create_id == nullptr ||
      destroy_id == nullptr || bind == nullptr || listen == nullptr || port_of == nullptr)
    return failed("librdmacm.so.1 lacks the most common functions");
  const std::string abi = manager_abi();
  if (abi.empty()) return failed("class/misc/rdma_cm/abi_version cannot be read");
  const auto refused = [](const char* call) {
    return failed(std::string(call) + ": " + std::strerror(errno));
  };
  rdma_event_channel* channel = create_channel();
  if (channel == nullptr) return refused("rdma_create_event_channel");
  rdma_cm_id* id = nullptr;
  if (create_id(channel, &id, nullptr, RDMA_PS_TCP) != 0) return refused("rdma_create_id");
  sockaddr_in loopback{};
  loopback.sin_family = AF_INET;
  loopback.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (bind(id, reinterpret_cast<sockaddr*>(&loopback)) != 0) return refused("rdma_bind_addr");
  if (listen(id, 1) != 0) return refused("rdma_listen");
  std::printf("opens the device file (ABI %s) and listens on port %u\n", abi.c_str(), ntohs(port_of(id)));
  destroy_id(id);
  destroy_channel(channel);
  return 0;
}

}  // namespace

void add_probe(CLI::App& app, CommandLine& line) {
  CLI::App* command = app.add_subcommand("probe", "open the device as a program does");
  command->group("");
  auto manager = std::make_shared<bool>(false);
  command->add_option_function<std::string>("what", [manager](const std::string& what) {
    if (what != "rdma_cm") throw UsageError{"probe knows rdma_cm only"};
    *manager = true;
  });
  command->callback([manager, &line] { line.action = *manager ? probe_manager : probe; });
}

}  // namespace verbena::tool
