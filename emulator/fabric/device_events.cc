// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/device_events.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "fabric/device_tree.h"
#include "fabric/kick.h"
#include "fabric/node.h"
#include "fabric/node_directory.h"

namespace verbena {
namespace {

using namespace std::chrono_literals;

constexpr auto kLockPatience = 10s;

// flock(2) with an end: the holder may be stopped. The kernel unlocks for those who die.
class FileLock {
 public:
  explicit FileLock(const std::string& path) : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW)) {
    if (fd_ < 0) {
      error_ = errno;
      return;
    }
    const auto deadline = std::chrono::steady_clock::now() + kLockPatience;
    while (flock(fd_, LOCK_EX | LOCK_NB) != 0) {
      error_ = errno == EWOULDBLOCK || errno == EINTR ? ETIMEDOUT : errno;
      if (error_ != ETIMEDOUT || std::chrono::steady_clock::now() >= deadline) return;
      std::this_thread::sleep_for(2ms);
    }
    error_ = 0;
  }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  ~FileLock() {
    if (fd_ >= 0) close(fd_);
  }
  int error() const { return error_; }

 private:
  int fd_;
  int error_ = 0;
};

// The word that requesters look at repeats what the logs say. Whoever died between the two is made good for.
void publish_ports(const NodeDirectory& directory) {
  uint32_t down = 0;
  for (uint32_t i = 0; i < directory.devices().count; ++i)
    if (directory.events(i).port_down()) down |= 1u << i;
  directory.header().ports_down.store(down, std::memory_order_release);
}

void kick_everybody(const NodeDirectory& directory, const std::string& node, uint32_t* told) {
  *told = 0;
  for (uint32_t i = 0; i < kMaxSlots; ++i) {
    const Slot& slot = directory.slot(i);
    const uint32_t generation = slot.generation.load(std::memory_order_acquire);
    if (kick_slot(directory, node, i, generation)) ++*told;
  }
}

}  // namespace

uint64_t count_device_events(const NodeDirectory& directory) {
  uint64_t count = 0;
  for (uint32_t i = 0; i < directory.devices().count; ++i) count += directory.events(i).count();
  return count;
}

int raise_device_event(const NodeDirectory& directory, const std::string& node, uint32_t device,
                       ibv_event_type type, uint32_t* told) {
  const FileLock lock(directory_path(node));
  if (lock.error() != 0) return lock.error();
  DeviceEventLog& log = directory.events(device);
  const bool was_down = log.port_down();
  const bool is_down = type == IBV_EVENT_PORT_ERR || (was_down && type != IBV_EVENT_PORT_ACTIVE);
  const bool nothing_new =
      (type == IBV_EVENT_PORT_ERR && was_down) || (type == IBV_EVENT_PORT_ACTIVE && !was_down);
  if (!nothing_new) {
    const uint64_t number = log.count();
    log.types[number % DeviceEventLog::kLength].store(static_cast<uint8_t>(type), std::memory_order_relaxed);
    log.word.store((number + 1) << 1 | (is_down ? 1 : 0), std::memory_order_release);
  }
  publish_ports(directory);
  if (const int error = show_port_state(node, directory.devices().devices[device], is_down); error != 0)
    return error;
  kick_everybody(directory, node, told);
  return nothing_new ? EALREADY : 0;
}

}  // namespace verbena
