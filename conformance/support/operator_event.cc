// SPDX-License-Identifier: BSD-2-Clause
#include "support/operator_event.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "suite/test.h"

extern char** environ;

namespace conformance {
namespace {

using Clock = std::chrono::steady_clock;

struct Words {
  const char* name;  // the command's argument
  const char* what;  // for a human being, with the device and port behind it
};

constexpr Words words[] = {
    {"link-down", "take the link down (pull the cable, or set the port down at the switch) of"},
    {"link-up", "bring the link back of"},
    {"gid-change", "add an address to, or remove one from, the network interface of"},
    {"address-change", "let the bond fail over (Linux tells of no other change of hardware address) of"},
    {"reset", "reset the adapter (devlink dev reload, or the driver's reset) of"},
};

const Words& words_of(OperatorEvent event) { return words[static_cast<size_t>(event)]; }

void ask(const Words& event, const std::string& device, int port) {
  const int terminal = open("/dev/tty", O_WRONLY | O_CLOEXEC);  // the test's own output goes nowhere
  if (terminal < 0) throw NotTested{"there is no terminal to ask on"};
  const std::string text = "\nverbs-conformance: now " + std::string(event.what) + ' ' + device + ", port " +
                           std::to_string(port) + ", within " +
                           std::to_string(operator_time().count() / 1000) + " s\n";
  const ssize_t written = write(terminal, text.data(), text.size());
  close(terminal);
  if (written < 0) throw NotTested{"the terminal takes no words"};
}

// The status that waitpid(2) gives. Throws NotTested if the command cannot be run or takes too long.
int run(const std::string& line) {
  const char* const arguments[] = {"sh", "-c", line.c_str(), nullptr};
  pid_t pid = -1;
  if (const int error =
          posix_spawn(&pid, "/bin/sh", nullptr, nullptr, const_cast<char* const*>(arguments), environ);
      error != 0)
    throw NotTested{"cannot run '" + line + "': " + strerror(error)};
  const auto time = scaled(std::chrono::seconds(20));
  const auto deadline = Clock::now() + time;
  int status = 0;
  while (waitpid(pid, &status, WNOHANG) == 0) {
    if (Clock::now() < deadline) {
      give_way();
      continue;
    }
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    throw NotTested{"'" + line + "' does not end within " + std::to_string(time.count() / 1000) + " s"};
  }
  return status;
}

}  // namespace

std::chrono::milliseconds operator_time() {
  return scaled(options().event_command == "ask" ? std::chrono::seconds(60) : std::chrono::seconds(5));
}

void cause(OperatorEvent event, const Device& device) {
  const std::string& command = options().event_command;
  const Words& asked = words_of(event);
  if (command.empty()) throw NotTested{std::string("only an operator can cause ") + asked.name + ": --event-command"};
  trace(std::string("operator: ") + asked.name);
  if (command == "ask") return ask(asked, device.name(), device.port_number());
  const std::string line =
      command + ' ' + asked.name + ' ' + device.name() + ' ' + std::to_string(device.port_number());
  const int status = run(line);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    throw NotTested{"'" + line + "' ends with status " +
                    std::to_string(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status))};
}

LinkDown::LinkDown(const Device& device) : device_(device) {
  cause(OperatorEvent::link_down, device_);
  is_down_ = true;
}

LinkDown::~LinkDown() {
  if (!is_down_) return;
  try {
    bring_back();
  } catch (const NotTested& gap) {
    trace(gap.reason);
  }
}

void LinkDown::bring_back() {
  is_down_ = false;
  cause(OperatorEvent::link_up, device_);
}

}  // namespace conformance
