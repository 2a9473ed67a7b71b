// SPDX-License-Identifier: BSD-2-Clause
#include "engine/remote/remote_datagram.h"

#include <cstring>

#include "engine/objects/process.h"
#include "engine/remote/remote_path.h"

namespace verbena {
std::unique_ptr<DatagramSender> make_remote_sender(Process& process) {
  auto sender = std::make_unique<DatagramSender>();
  sender->process = &process;
  sender->index = kRemoteIndex;
  return sender;
}

RemoteDatagram remote_datagram(const wire::DatagramHead& head, const void* bytes, uint32_t size) {
  RemoteDatagram datagram{};
  datagram.bytes = static_cast<const uint8_t*>(bytes);
  datagram.length = size;
  datagram.target_qpn = head.target_qpn;
  datagram.source = {head.source_qpn, 0, static_cast<uint8_t>(head.sl & 15), head.path_bits};
  datagram.qkey = head.qkey;
  datagram.immediate = head.immediate;
  datagram.flags = head.flags;
  std::memcpy(datagram.destination.raw, head.destination, sizeof head.destination);
  return datagram;
}

}  // namespace verbena
