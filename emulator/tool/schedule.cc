// SPDX-License-Identifier: BSD-2-Clause
#include "tool/schedule.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "adapter/clock.h"
#include "fabric/device_events.h"
#include "fabric/node.h"
#include "fabric/node_directory.h"

namespace verbena::tool {
namespace {

constexpr int64_t kMillisecond = 1'000'000;

// 0 or an errno; EALREADY: the port is in that state, and nothing has happened.
int raise(const NodeDirectory& directory, const std::string& node, const ScheduledEvent& event) {
  uint32_t told = 0;
  const int error = raise_device_event(directory, node, event.device, event.type, &told, event.port);
  if (error != 0 && error != EALREADY)
    std::fprintf(stderr, "verbena: an event of the schedule cannot be raised: %s\n", std::strerror(error));
  return error;
}

// True: the process has ended before `until`, ns of CLOCK_MONOTONIC.
bool ends_before(int process, int64_t until) {
  pollfd end{process, POLLIN, 0};
  for (;;) {
    const int64_t left = until - now_ns();
    if (left <= 0) return false;
    const int64_t milliseconds = std::min<int64_t>(left / kMillisecond + 1, 1'000'000);
    if (poll(&end, 1, static_cast<int>(milliseconds)) > 0) return true;
  }
}

// What it puts down, it puts up in the end: the node may have other users.
void follow(int process, const NodeDirectory& directory, const std::string& node, const Schedule& schedule) {
  const int64_t began = now_ns();
  Schedule down;
  for (const ScheduledEvent& event : schedule) {
    if (ends_before(process, began + static_cast<int64_t>(event.at_ns))) break;
    const int error = raise(directory, node, event);
    std::erase_if(down, [&](const ScheduledEvent& other) {
      return event.type == IBV_EVENT_PORT_ACTIVE && other.device == event.device && other.port == event.port;
    });
    if (event.type == IBV_EVENT_PORT_ERR && error == 0) down.push_back(event);
  }
  if (down.empty()) return;
  ends_before(process, INT64_MAX);
  for (const ScheduledEvent& event : down)
    raise(directory, node, {IBV_EVENT_PORT_ACTIVE, event.device, event.port, 0});
}

bool names_ports_that_exist(const DeviceTable& devices, const Schedule& schedule) {
  return std::all_of(schedule.begin(), schedule.end(), [&](const ScheduledEvent& event) {
    return event.device < devices.count && event.port >= 1 &&
           event.port <= devices.devices[event.device].count_ports();
  });
}

// Descriptors belong to the program alone: whatever waits for the end of its output must not wait for this
// process. `process` is above them.
void leave_descriptors(int process) {
  const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  dup2(nothing, STDIN_FILENO);
  dup2(nothing, STDOUT_FILENO);
  const auto mine = static_cast<unsigned>(process);
  if (mine > 3) syscall(SYS_close_range, 3u, mine - 1, 0u);
  syscall(SYS_close_range, mine + 1, ~0u, 0u);
}

}  // namespace

int start_schedule(const std::string& node, Schedule schedule) {
  std::stable_sort(schedule.begin(), schedule.end(),
                   [](const auto& one, const auto& other) { return one.at_ns < other.at_ns; });
  NodeDirectory directory;
  if (const int error = directory.open(directory_path(node).c_str()); error != 0) return error;
  if (!names_ports_that_exist(directory.devices(), schedule)) return EINVAL;
  const auto process =
      static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0));  // close-on-exec: pidfd_open(2)
  if (process < 0) return errno;
  const pid_t child = fork();
  if (child < 0) return close(process), errno;
  if (child == 0) {
    const pid_t follower = fork();
    if (follower != 0) _exit(follower < 0 ? 1 : 0);
    setsid();
    const int kept = fcntl(process, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (kept < 0) _exit(0);
    leave_descriptors(kept);
    NodeDirectory own;
    if (own.open(directory_path(node).c_str()) == 0) follow(kept, own, node, schedule);
    _exit(0);
  }
  close(process);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  return status == 0 ? 0 : EAGAIN;
}

}  // namespace verbena::tool
