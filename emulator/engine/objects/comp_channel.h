// SPDX-License-Identifier: BSD-2-Clause
//
// Completion channels (ibv_create_comp_channel(3)), and the table of those of a context. libibverbs closes
// the descriptor of a channel without telling the provider. So the table looks whether descriptors are still
// the program's ends: at one for each CQ that is created, at a few others for each channel that is created.
// The cost of either does not depend on how many channels there are.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "fabric/fifo.h"

namespace verbena {

class NodeMembership;

struct CompChannel {
  uint32_t number = 0;
  const NodeMembership* membership = nullptr;
  std::string name;  // of the FIFO, which goes with the channel
  FifoEnd fifo;
  int program_fd = -1;  // the program closes it without notice; the pipe's identity shows it
  std::atomic<uint32_t> users{0};
  std::mutex drain_mutex;

  ~CompChannel();
};

// Any thread may call any function.
class CompChannels {
 public:
  // The channel whose reading end the program holds as `fd`; nullptr: none. It lives as long as the program
  // holds `fd` or `users` is not 0.
  CompChannel* find(int fd);

  void add(std::unique_ptr<CompChannel> channel);

  // Frees channels that the program has closed and that no CQ uses: looks at the next `at_most` in turn.
  void drop_closed(size_t at_most);

  size_t size();

 private:
  // By program_fd. A closed channel that a CQ still uses may have the number of a later one.
  using Table = std::multimap<int, std::unique_ptr<CompChannel>>;

  Table::iterator drop_if_closed(Table::iterator entry);

  std::mutex mutex_;
  Table table_;
  int looked_at_ = -1;  // the descriptor that drop_closed() looked at last
};

}  // namespace verbena
