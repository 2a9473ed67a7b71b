// SPDX-License-Identifier: BSD-2-Clause
//
// Management datagrams of the connection manager: MADs to QP 1 (Annex A17, A17.4.3; the kernel's
// drivers/infiniband/core/mad.c). All processes of the node share QP 1. The process that reads a MAD finds
// out which one it is for. What a MAD says is the connection manager's business, which lies above.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>

#include "fabric/node_directory.h"
#include "roce/mad.h"
#include "wire/net_address.h"

namespace verbena {

class PacketSender;
class Process;

struct Mad {
  wire::NetAddress from, to;
  std::array<uint8_t, roce::kMadSize> bytes;
};

// What the connection manager knows of MADs. Functions of the bytes, which are not trusted.
struct MadRules {
  static constexpr uint32_t kNobody = UINT32_MAX, kEverybody = UINT32_MAX - 1;
  // The slot of the process of the node that it is for.
  uint32_t (*find_receiver)(const NodeDirectory& directory, const std::string& node, const Mad& mad);
  // Nobody is there: the reply, in place. False: there is none.
  bool (*refuse)(Mad* mad);
};

class Management {
 public:
  explicit Management(Process& process) : process_(process) {}

  // Of all networks of the program.
  static void set_rules(const MadRules& rules);

  // The connection manager of this process: `arrived(context)` for each MAD, in any thread, with no lock but
  // the receiver's. nullptr: none; on return it is not running.
  void receive_by(void (*arrived)(void* context, const Mad& mad), void* context);

  // Sends `mad` from mad.from. Any thread.
  void send(PacketSender& sender, const Mad& mad);

  // The MAD of a packet to QP 1. False: it is none.
  static bool parse(std::span<const uint8_t> datagram, Mad* out);
  // kNobody, kEverybody, or a slot.
  uint32_t receiver_of(const Mad& mad) const;
  static bool refuse(Mad* mad);
  // For this process.
  void take(const Mad& mad);

 private:
  Process& process_;
  std::atomic<uint32_t> psn_{0};
  std::mutex mutex_;  // held while `arrived_` runs
  void (*arrived_)(void*, const Mad&) = nullptr;
  void* context_ = nullptr;
};

}  // namespace verbena
