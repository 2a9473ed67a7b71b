// SPDX-License-Identifier: BSD-2-Clause
#include "engine/objects/comp_channel.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "fabric/node_membership.h"

namespace verbena {

CompChannel::~CompChannel() {
  if (!fifo.is_open()) return;
  fifo.close();  // before: at the limit of descriptors, its number is needed to remove the name
  membership->remove_fifo(name);
}

CompChannels::Table::iterator CompChannels::drop_if_closed(Table::iterator entry) {
  const CompChannel& channel = *entry->second;
  const bool kept =
      channel.users.load(std::memory_order_acquire) != 0 || channel.fifo.is_same_pipe(channel.program_fd);
  return kept ? std::next(entry) : table_.erase(entry);
}

CompChannel* CompChannels::find(int fd) {
  std::lock_guard lock(mutex_);
  const auto [first, last] = table_.equal_range(fd);
  const auto open = std::find_if(
      first, last, [fd](const Table::value_type& entry) { return entry.second->fifo.is_same_pipe(fd); });
  return open != last ? open->second.get() : nullptr;
}

void CompChannels::add(std::unique_ptr<CompChannel> channel) {
  std::lock_guard lock(mutex_);
  const int fd = channel->program_fd;
  table_.emplace(fd, std::move(channel));
}

void CompChannels::drop_closed(size_t at_most) {
  std::lock_guard lock(mutex_);
  auto entry = table_.upper_bound(looked_at_);
  for (size_t left = std::min(at_most, table_.size()); left > 0; --left) {
    if (entry == table_.end()) entry = table_.begin();
    looked_at_ = entry->first;
    entry = drop_if_closed(entry);
  }
  // The next call begins behind this descriptor, so the others with its number are looked at now.
  while (entry != table_.end() && entry->first == looked_at_) entry = drop_if_closed(entry);
}

size_t CompChannels::size() {
  std::lock_guard lock(mutex_);
  return table_.size();
}

}  // namespace verbena
