// SPDX-License-Identifier: BSD-2-Clause
#include "tool/environment.h"

#include <errno.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <thread>

#include "fabric/machine_devices.h"
#include "fabric/node.h"
#include "fabric/node_directory.h"
#include "fabric/private_folder.h"
#include "fabric/shared_heap.h"
#include "tool/file_size_signal.h"
#include "udp/roce_socket.h"
#include "wire/key.h"
#include "wire/listening.h"
#include "wire/node_recipe.h"
#include "wire/port_claim.h"

namespace verbena::tool {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> split(const std::string& list, const char* separators) {
  std::vector<std::string> parts;
  for (size_t from = 0; from <= list.size();) {
    const size_t to = std::min(list.find_first_of(separators, from), list.size());
    if (to > from) parts.push_back(list.substr(from, to - from));
    from = to + 1;
  }
  return parts;
}

std::string join(const std::vector<std::string>& parts) {
  std::string list;
  for (const std::string& part : parts) list += (list.empty() ? "" : ":") + part;
  return list;
}

std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// `first`, then the entries of `list`, then `last`. Left out of `list`: entries of `first`, and those with
// the file name of `last`.
std::string extended(const std::string& list, const char* separators, const std::vector<std::string>& first,
                     const std::string& last) {
  std::vector<std::string> parts = first;
  const auto replaced = [&](const std::string& entry) {
    if (base_name(entry) == base_name(last)) return true;
    for (const std::string& added : first)
      if (entry == added) return true;
    return false;
  };
  for (const std::string& entry : split(list, separators))
    if (!replaced(entry)) parts.push_back(entry);
  parts.push_back(last);
  return join(parts);
}

// Sanitizers read their options from left to right; the last one wins.
std::string with_option(const std::string& options, const std::string& option) {
  const std::string name = option.substr(0, option.find('=') + 1);
  std::string last;
  for (const std::string& each : split(options, ":"))
    if (each.rfind(name, 0) == 0) last = each;
  if (last == option) return options;
  return options.empty() ? option : options + ":" + option;
}

// Tries again while the port is in use, for 2 s: a process that has it may be about to exit.
template <typename Attempt>
int try_while_in_use(Attempt attempt) {
  int error = attempt();
  for (int i = 0; i < 100 && error == EADDRINUSE; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    error = attempt();
  }
  return error;
}

// EADDRINUSE: no process is on the node, and a node in another folder (another $TMPDIR) listens.
int check_listening(const std::string& node, const wire::NetAddress& address, uint16_t port,
                    std::string* problem) {
  return try_while_in_use(
      [&] { return wire::could_listen_at(address, port, !node_is_inhabited(node), problem); });
}

// EADDRINUSE: no process is on the node, and the kernel's rxe or another node has the port.
int check_packets(const std::string& node, const wire::NetAddress& address, std::string* problem) {
  udp::RoceSocket socket;
  return try_while_in_use([&] {
    const int error = socket.open(address, udp::kRocePort, problem);
    return error == EADDRINUSE && node_is_inhabited(node) ? 0 : error;
  });
}

void add_heap(const NodeOptions& options, std::vector<Variable>* environment) {
  if (options.shared_heap) environment->push_back({kSharedHeapVariable, "1"});
}

// 0: there is no such node yet.
uint64_t id_of(const std::string& node) {
  NodeDirectory directory;
  return directory.open(directory_path(node).c_str()) == 0 ? directory.header().node_id : 0;
}

// Checks everything that would keep the node's processes from listening, since only the command can report it
// to the user.
int prepare_network(const NodeOptions& options, const std::string& node, NetworkKey* key,
                    std::string* problem) {
  const DeviceTable table = describe_devices(options.devices);
  if (table.network.count == 0) {
    *problem = "the machine has no address that others could reach it by";
    return kFailed;
  }
  for (uint32_t i = 0; i < table.network.count; ++i) {
    const wire::NetAddress address{table.network.addresses[i]};
    if (table.network.kind == NetworkKind::kRoce) {
      if (check_packets(node, address, problem) != 0) return kFailed;
      continue;
    }
    const uint16_t port = options.devices.network.port;
    if (wire::find_other_claim(
            address, port, [&] { return id_of(node); }, problem) != 0 ||
        check_listening(node, address, port, problem) != 0)
      return kFailed;
  }
  if (!has_key(table.network)) return 0;
  const int error = options.key_file.empty() ? wire::user_key(nodes_folder(), key, problem)
                                             : wire::read_key(options.key_file, key, problem);
  return error == 0 ? 0 : kFailed;
}

}  // namespace

std::string file_beside_command(const char* relative) {
  std::error_code error;
  const fs::path command = fs::read_symlink("/proc/self/exe", error);
  const fs::path file = (command.parent_path() / relative).lexically_normal();
  return error || !fs::exists(file, error) ? "" : file.string();
}

std::vector<Variable> program_environment(const Installation& installation, const std::string& node,
                                          const std::string& recipe, const std::string& runtimes,
                                          Lookup current) {
  const std::string drivers = current("RDMAV_DRIVERS");
  const std::string asan_options = current("ASAN_OPTIONS"), leak_options = current("LSAN_OPTIONS");
  std::string asan = with_option(asan_options, "verify_asan_link_order=0");
  // A sanitised adapter brings its runtime into stock programs, which leak memory.
  if (!runtimes.empty() && asan_options.find("detect_leaks=") == std::string::npos)
    asan = with_option(asan, "detect_leaks=0");
  std::string leaks = file_beside_command(VERBENA_SUPPRESSIONS_FROM_BIN);  // of librdmacm and libibverbs (leaks.supp)
  if (leaks.find('\'') != std::string::npos) leaks.clear();
  return {
      {kNodeVariable, node},
      {wire::kRecipeVariable, recipe},
      {"LD_PRELOAD", extended(current("LD_PRELOAD"), " :\t\n", split(runtimes, ":"), installation.preload)},
      {"RDMAV_DRIVERS",
       extended(drivers.empty() ? current("IBV_DRIVERS") : drivers, ":;", {}, installation.driver)},
      {"ASAN_OPTIONS", asan},
      {"LSAN_OPTIONS", !leak_options.empty() || leaks.empty()
                           ? leak_options
                           : "suppressions='" + leaks + "':print_suppressions=0"},
  };
}

std::string sanitizer_runtimes(const Installation& installation) {
  const std::string start = VERBENA_SANITIZER_START;
  const std::string runtimes = VERBENA_SANITIZER_RUNTIMES;
  return start.empty() ? runtimes : runtimes + ":" + installation.library_folder + "/" + start;
}

std::string current_environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value != nullptr ? value : "";
}

int prepare(const NodeOptions& options, pid_t holder, std::vector<Variable>* out, std::string* problem) {
  const FileSizeSignalIgnored no_signal;
  Installation installation;
  if (find_installation(&installation, problem) != 0) return kFailed;
  if (!options.existing.empty()) {
    *out = program_environment(installation, options.existing, current_environment(wire::kRecipeVariable),
                               sanitizer_runtimes(installation), current_environment);
    add_heap(options, out);
    return 0;
  }
  const std::string node = node_path(options.name, options.devices);
  DeviceTableOptions devices = options.devices;
  if (devices.network.enabled) {
    if (ensure_private_folder(node.substr(0, node.rfind('/')), problem) != 0) return kFailed;
    if (prepare_network(options, node, &devices.network.key, problem) != 0) return kFailed;
  }
  if (ensure_node(node, devices, problem, holder) != 0) return kFailed;
  if (const int error = devices.beside ? show_machine_devices(node) : 0; error != 0) {
    *problem = "cannot show the machine's devices in " + node + ": " + std::strerror(error);
    return kFailed;
  }
  std::string key_file = options.key_file;
  if (!key_file.empty()) key_file = fs::absolute(key_file).string();
  *out = program_environment(installation, node, wire::write_recipe(options.devices, key_file),
                             sanitizer_runtimes(installation), current_environment);
  add_heap(options, out);
  return 0;
}

std::string shell_quoted(const std::string& value) {
  std::string quoted = "'";
  for (const char c : value) {
    if (c == '\'')
      quoted += "'\\''";
    else
      quoted += c;
  }
  return quoted + "'";
}

}  // namespace verbena::tool
