// SPDX-License-Identifier: BSD-2-Clause
#include "boundary/netlink_table.h"

#include "boundary/kernel.h"

namespace verbena {

namespace detail {
constinit std::atomic<uint64_t> netlink_filter[kNetlinkFilter / 64];
}  // namespace detail

namespace {

constexpr uint32_t kSockets = 256;
constexpr int kTaken = -1;

constinit NetlinkSocket sockets[kSockets];

uint64_t inode_of(int fd) {  // 0: not a socket
  struct stat status;
  return kernel::status(fd, &status) == 0 && S_ISSOCK(status.st_mode) ? status.st_ino : 0;
}

uint32_t bit_of(int fd) { return static_cast<uint32_t>(fd) % detail::kNetlinkFilter; }

void set_filter(int fd) {
  detail::netlink_filter[bit_of(fd) / 64].fetch_or(uint64_t{1} << bit_of(fd) % 64, std::memory_order_release);
}

// Frees the entry, whose descriptor has been closed.
void forget(NetlinkSocket& entry, int fd) {
  int expected = fd + 1;
  if (!entry.fd.compare_exchange_strong(expected, 0)) return;
  detail::netlink_filter[bit_of(fd) / 64].fetch_and(~(uint64_t{1} << bit_of(fd) % 64),
                                                    std::memory_order_acq_rel);
  // Another descriptor may have the same bit, or have got it at this moment.
  for (const NetlinkSocket& other : sockets)
    if (const int number = other.fd.load(std::memory_order_acquire);
        number > 0 && bit_of(number - 1) == bit_of(fd))
      set_filter(fd);
}

bool is_valid(const NetlinkSocket& entry, int fd) {
  const uint64_t inode = inode_of(fd);
  return inode != 0 && inode == entry.inode.load(std::memory_order_acquire);
}

// Takes an entry for `fd`: that of an earlier socket with this number, a free one, or one whose socket has
// been closed.
NetlinkSocket* take_entry(int fd) {
  const auto take = [](NetlinkSocket& entry, int expected) {
    return entry.fd.compare_exchange_strong(expected, kTaken, std::memory_order_acq_rel);
  };
  for (NetlinkSocket& entry : sockets)
    if (take(entry, fd + 1)) return &entry;
  for (NetlinkSocket& entry : sockets)
    if (take(entry, 0)) return &entry;
  for (NetlinkSocket& entry : sockets) {
    const int number = entry.fd.load(std::memory_order_acquire);
    if (number > 0 && !is_valid(entry, number - 1) && take(entry, number)) return &entry;
  }
  return nullptr;
}

// Copies of a descriptor share the state.
bool is_shared(const NetlinkSocket& entry) {
  const void* state = entry.state.load(std::memory_order_acquire);
  for (const NetlinkSocket& other : sockets)
    if (&other != &entry && other.state.load(std::memory_order_acquire) == state) return true;
  return false;
}

void publish(NetlinkSocket& entry, int fd, uint64_t inode, uint32_t port, void* state) {
  entry.inode.store(inode, std::memory_order_relaxed);
  entry.port.store(port, std::memory_order_relaxed);
  entry.state.store(state, std::memory_order_relaxed);
  entry.fd.store(fd + 1, std::memory_order_release);
  set_filter(fd);
}

}  // namespace

bool enter_netlink(int fd, const verbena_netlink_kernel& kernel) {
  const uint64_t inode = inode_of(fd);
  NetlinkSocket* entry = inode != 0 ? take_entry(fd) : nullptr;
  if (entry == nullptr) return false;
  void* state = entry->state.load(std::memory_order_acquire);
  if (state != nullptr && !is_shared(*entry))
    kernel.reset(state);
  else
    state = kernel.open();
  if (state == nullptr) {
    entry->fd.store(0, std::memory_order_release);
    return false;
  }
  publish(*entry, fd, inode, 0, state);
  return true;
}

NetlinkSocket* find_netlink(int fd) {
  for (NetlinkSocket& entry : sockets) {
    if (entry.fd.load(std::memory_order_acquire) != fd + 1) continue;
    if (is_valid(entry, fd)) return &entry;
    forget(entry, fd);
  }
  return nullptr;
}

void inherit_netlink(int fd, int copy) {
  if (fd == copy) return;
  const NetlinkSocket* original = find_netlink(fd);
  NetlinkSocket* entry = original != nullptr ? take_entry(copy) : nullptr;
  if (entry == nullptr) return;
  publish(*entry, copy, original->inode.load(std::memory_order_acquire),
          original->port.load(std::memory_order_acquire), original->state.load(std::memory_order_acquire));
}

}  // namespace verbena
