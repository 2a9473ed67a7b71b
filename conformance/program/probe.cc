// SPDX-License-Identifier: BSD-2-Clause
#include "program/probe.h"

#include <dlfcn.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <sstream>
#include <stdexcept>

#include "support/device.h"
#include "support/stack.h"

namespace conformance {
namespace {

constexpr const char* provider_prefix = "provider_file=";

// NAME=VALUE lines; '!' begins the reason why there is no device.
std::string describe(const Options& options) {
  try {
    const Device device(options);
    std::string out;
    for (const auto& [name, value] : facts_of(device)) out += name + '=' + value + '\n';
    for (const auto& [name, value] : stack_of(device)) out += stack_prefix + name + '=' + value + '\n';
    out += provider_prefix + provider_file(device) + '\n';
    return out;
  } catch (const std::exception& error) {
    return std::string("!") + error.what() + '\n';
  }
}

// A line "PORT GID_INDEX GID" for each place.
std::string list_places(const Options& options) {
  try {
    const Device device(options);
    std::string out = device.name() + '\n';
    for (int port = 1; port <= device.attributes().phys_port_cnt; ++port) {
      if (!options.all_ports && port != device.port_number()) continue;
      Options at = options;
      at.device = device.name();
      at.port = port;
      try {
        const Device there(at);
        for (int index = 0; index < there.port().gid_tbl_len && index < 256; ++index) {
          ibv_gid_entry entry;
          if (options.all_gids ? ibv_query_gid_ex(there.context(), static_cast<uint32_t>(port),
                                                  static_cast<uint32_t>(index), &entry, 0) != 0
                               : index != there.gid_index())
            continue;
          out += std::to_string(port) + ' ' + std::to_string(index) + ' ' +
                 gid_text(options.all_gids ? entry.gid : there.gid()) + '\n';
        }
      } catch (const std::runtime_error&) {  // this port is not active
      }
    }
    return out;
  } catch (const std::exception& error) {
    return std::string("!") + error.what() + '\n';
  }
}

std::string from_child(const Options& options, std::string (*describe)(const Options&)) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("no pipe");
  const pid_t pid = fork();
  if (pid == 0) {
    const std::string text = describe(options);
    if (write(ends[1], text.data(), text.size()) < 0) _exit(1);
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  const auto deadline = std::chrono::steady_clock::now() +
                        std::chrono::milliseconds(static_cast<int64_t>(30000 * options.time_scale));
  for (bool open = pid > 0; open;) {
    // Rounded up: what is left of a millisecond is not the end.
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd waiting{ends[0], POLLIN, 0};
    char buffer[4096];
    const ssize_t count = left.count() > 0 && poll(&waiting, 1, static_cast<int>(left.count())) > 0
                              ? read(ends[0], buffer, sizeof buffer)
                              : 0;
    open = count > 0;
    if (open) text.append(buffer, static_cast<size_t>(count));
  }
  close(ends[0]);
  if (pid < 0) throw std::runtime_error("no process: fork fails");
  const bool is_late = text.empty() && std::chrono::steady_clock::now() >= deadline;
  kill(pid, SIGKILL);
  int status = 0;
  // A process that is in the kernel on behalf of the device may not end at all.
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (waitpid(pid, &status, WNOHANG) == 0 && std::chrono::steady_clock::now() < limit) poll(nullptr, 0, 1);
  if (is_late) throw std::runtime_error("the device does not answer");
  if (text.empty())
    throw std::runtime_error(WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL
                                 ? std::string("the driver crashes the process that opens the device: ") +
                                       strsignal(WTERMSIG(status))
                                 : "the process that opens the device ends without a word");
  if (text[0] == '!') throw std::runtime_error(text.substr(1, text.size() - 2));
  return text;
}

}  // namespace

Probed probe(const Options& options) {
  Probed out;
  std::istringstream lines(from_child(options, describe));
  for (std::string line; std::getline(lines, line);) {
    const size_t equals = line.find('=');
    if (equals == std::string::npos) continue;
    if (line.starts_with(provider_prefix)) {
      out.provider = line.substr(equals + 1);
      continue;
    }
    const bool is_stack = line.starts_with(stack_prefix);
    const size_t begin = is_stack ? strlen(stack_prefix) : 0;
    (is_stack ? out.stack : out.device)
        .emplace_back(line.substr(begin, equals - begin), line.substr(equals + 1));
  }
  return out;
}

void load_provider(const std::string& file) {
  if (!file.empty()) dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
}

void choose(const Probed& found, Options& options) {
  options.device = value_of(found.device, "name");
  options.port = std::stoi(value_of(found.device, "port"));
  options.gid_index = std::stoi(value_of(found.device, "gid_index"));
}

std::vector<Place> places(const Options& options) {
  std::vector<Place> out;
  std::istringstream lines(from_child(options, list_places));
  std::string device;
  std::getline(lines, device);
  for (Place place{device, 0, 0, {}}; lines >> place.port >> place.gid_index >> place.gid;)
    out.push_back(place);
  if (out.empty()) throw std::runtime_error(device + " has no GID on an active port");
  return out;
}

}  // namespace conformance
