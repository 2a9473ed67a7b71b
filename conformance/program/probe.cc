// SPDX-License-Identifier: BSD-2-Clause
#include "program/probe.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <sstream>
#include <stdexcept>

#include "support/device.h"

namespace conformance {
namespace {

// NAME=VALUE lines; '!' begins the reason why there is no device.
std::string describe(const Options& options) {
  try {
    const Device device(options);
    std::string out;
    for (const auto& [name, value] : facts_of(device)) out += name + '=' + value + '\n';
    return out;
  } catch (const std::exception& error) {
    return std::string("!") + error.what() + '\n';
  }
}

std::string from_child(const Options& options) {
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
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd waiting{ends[0], POLLIN, 0};
    char buffer[4096];
    const ssize_t count = left.count() > 0 && poll(&waiting, 1, static_cast<int>(left.count())) > 0
                              ? read(ends[0], buffer, sizeof buffer)
                              : 0;
    open = count > 0;
    if (open) text.append(buffer, static_cast<size_t>(count));
  }
  close(ends[0]);
  if (pid > 0) {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  return text;
}

}  // namespace

Facts probe(Options& options) {
  const std::string text = from_child(options);
  if (text.empty()) throw std::runtime_error("the device does not answer");
  if (text[0] == '!') throw std::runtime_error(text.substr(1, text.size() - 2));
  Facts facts;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t equals = line.find('=');
    const std::string name = line.substr(0, equals), value = line.substr(equals + 1);
    if (name == "name") options.device = value;
    if (name == "port") options.port = std::stoi(value);
    if (name == "gid_index") options.gid_index = std::stoi(value);
    facts.emplace_back(name, value);
  }
  return facts;
}

}  // namespace conformance
