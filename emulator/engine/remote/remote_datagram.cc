// SPDX-License-Identifier: BSD-2-Clause
#include "engine/remote/remote_datagram.h"

#include <cstring>

#include "engine/objects.h"
#include "engine/remote/remote_path.h"

namespace verbena {
namespace {

struct Sender {
  Qp qp;
  SharedQp shared{};
};

}  // namespace

std::shared_ptr<Qp> make_remote_sender(Process& process) {
  const auto sender = std::make_shared<Sender>();
  sender->qp.process = &process;
  sender->qp.shared = &sender->shared;
  sender->qp.index = kRemoteIndex;
  sender->qp.type = IBV_QPT_UD;
  sender->qp.datagrams = make_datagrams(sender->qp);
  return {sender, &sender->qp};
}

RemoteDatagram remote_datagram(const wire::DatagramHead& head, const void* bytes, uint32_t size) {
  RemoteDatagram datagram{};
  datagram.bytes = static_cast<const uint8_t*>(bytes);
  datagram.length = size;
  datagram.target_qpn = head.target_qpn;
  datagram.source = {head.source_qpn, 0, head.sl, head.path_bits};
  datagram.qkey = head.qkey;
  datagram.immediate = head.immediate;
  datagram.flags = head.flags;
  std::memcpy(datagram.destination.raw, head.destination, sizeof head.destination);
  return datagram;
}

}  // namespace verbena
