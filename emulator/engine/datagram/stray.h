// SPDX-License-Identifier: BSD-2-Clause
//
// Stray datagrams: those that have come to a device of this node, and that no queue pair takes.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "engine/datagram/delivery.h"

namespace verbena {

// `to` is the destination of `address` and `qpn`. Counts the datagram for each device that has the address and
// whose port is up (DirectoryHeader::stray_datagrams), and explains it to the processes that may wait for it:
// those that log at `warn` and have a UD queue pair at such a device. They name both numbers, that of the
// datagram and their own. Of a sender's strays the 1st, 2nd, 4th, 8th ... are explained, but none to a queue
// pair that has been there: a receiver may end first. Waits up to half a second for a process that this one
// meets for the first time.
[[gnu::cold]] void note_stray(DatagramSender& from, const ibv_ah_attr& address, const Destination& to,
                              uint32_t qpn, const DatagramMessage& message);

}  // namespace verbena
