// SPDX-License-Identifier: BSD-2-Clause
#include "wire/incoming.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

#include "fabric/fork_descriptors.h"

namespace verbena::wire {

Incoming::~Incoming() {
  if (fd_ < 0) return;
  no_longer_keep(fd_);
  close(fd_);
}

int Incoming::give_away() { return std::exchange(fd_, -1); }

Incoming::State Incoming::end(Refusal refusal) {
  refusal_ = refusal;
  return State::kOver;
}

Incoming::State Incoming::progress(uint64_t own_node, std::span<const NetAddress> own) {
  using Step = ResponderHandshake::Step;
  while (const size_t wanted = handshake_.wanted()) {
    const ssize_t got = recv(fd_, bytes_.data() + filled_, wanted - filled_, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return State::kGoesOn;
    if (got <= 0) return end(Refusal::kClosed);
    filled_ += static_cast<size_t>(got);
    if (filled_ < wanted) continue;
    filled_ = 0;
    if (handshake_.step() == Step::kProof) {
      handshake_.proof_arrived(std::span(bytes_).first<kProofSize>());
      continue;
    }
    handshake_.hello_arrived(bytes_, own_node, own);
    // The send buffer is empty: a healthy connection takes the message as a whole.
    const auto& challenge = handshake_.challenge();
    if (send(fd_, challenge.data(), challenge.size(), MSG_NOSIGNAL | MSG_DONTWAIT) !=
        static_cast<ssize_t>(challenge.size()))
      return end(Refusal::kClosed);
  }
  return handshake_.step() == Step::kAdmitted ? State::kAdmitted : end(handshake_.refusal());
}

}  // namespace verbena::wire
