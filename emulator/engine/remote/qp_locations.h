// SPDX-License-Identifier: BSD-2-Clause
//
// Which process of another node has which UD queue pair. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "wire/net_address.h"

namespace verbena {

struct RemotePeer;

class QpLocations {
 public:
  void note(const wire::NetAddress& node, uint32_t qpn, const std::shared_ptr<RemotePeer>& peer);
  // The process that has the queue pair; nullptr: it is not known, or not connected.
  std::shared_ptr<RemotePeer> connected(const wire::NetAddress& node, uint32_t qpn) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<wire::NetAddress, uint32_t>, std::weak_ptr<RemotePeer>> peers_;
};

}  // namespace verbena
