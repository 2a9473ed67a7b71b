// SPDX-License-Identifier: BSD-2-Clause
#include "engine/datagram/datagram_transport.h"

#include "engine/completion/send_completion.h"
#include "engine/datagram/address_handle.h"
#include "engine/datagram/datagram.h"
#include "engine/objects/qp.h"
#include "engine/requester/requester.h"

namespace verbena {
namespace {

class DatagramTransport final : public Transport {
 public:
  SendResult send(Qp& qp, const SendOperation& operation, SendRequest& request) override {
    if (must_wait(qp, request)) return {SendOutcome::kYield};
    if (const VendorError error = send_datagram(qp, operation, request); error != VendorError::none)
      return {SendOutcome::kFailed, error};
    const bool completed = finish_request(qp, request, request.ah->multicast);
    raise_both_events(qp, completed, [&] { raise_datagram_events(qp); });
    return {SendOutcome::kCompleted};
  }

  bool is_synchronous() const override { return true; }
  uint32_t chunk_size() const override { return UINT32_MAX; }
  uint64_t patience_ns(const Qp&) const override { return 0; }
};

}  // namespace

Transport& datagram_transport() {
  static constinit DatagramTransport transport;
  return transport;
}

}  // namespace verbena
