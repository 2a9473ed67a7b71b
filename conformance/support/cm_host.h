// SPDX-License-Identifier: BSD-2-Clause
//
// The far end of the rdma_cm: carries out the requests of cm_messages.h, in the test's own process or in the
// server's.
#pragma once

#include <future>
#include <memory>
#include <optional>

#include "support/cm_messages.h"
#include "support/cm_objects.h"
#include "support/ends.h"
#include "support/host.h"

namespace conformance {

wire::Address to_wire(const SocketAddress& address);
SocketAddress from_wire(const wire::Address& address);
wire::CmConnection to_wire(const ConnectionSpec& spec);
EventFacts from_wire(const wire::CmEventFacts& facts);

// One identifier that listens, and one that is the far end of the test: from a request, a resolution or a
// binding. Both use one channel, asynchronously. Throws Deviation when a call that a request needs fails.
class CmHost final : public Service {
 public:
  explicit CmHost(Device& device) : device_(device) {}
  std::string answer(uint16_t kind, const std::string& request) override;

 private:
  struct Handler;
  static const Handler handlers[];

  wire::Address open(const wire::CmOpen&);
  wire::Address listen(const wire::CmAt&);
  wire::Address reserve(const wire::CmAt&);
  wire::CmEventFacts take_request(const wire::Nothing&);
  wire::Result accept(const wire::CmConnection&);
  wire::Result reject(const wire::CmBytes&);
  wire::Nothing serve(const wire::CmConnection&);
  wire::CmEventFacts served(const wire::Nothing&);
  wire::Nothing resolve(const wire::CmAt&);
  wire::Nothing bind(const wire::CmAt&);
  wire::Result connect(const wire::CmConnection&);
  wire::CmEventFacts join(const wire::CmAt&);
  wire::Nothing leave(const wire::CmAt&);
  wire::Result send_to_group(const wire::Nothing&);
  wire::Nothing make_qp(const wire::Nothing&);
  wire::Result disconnect(const wire::Nothing&);
  wire::Result set_ece(const wire::CmEce&);
  wire::CmEce remote_ece(const wire::Nothing&);
  wire::CmEventFacts event(const wire::CmExpected&);
  wire::CmQuiet stays_quiet(const wire::Nothing&);
  wire::CmQueue queue(const wire::Nothing&);
  wire::Address local(const wire::Nothing&);
  wire::Nothing destroy(const wire::Nothing&);
  wire::Nothing fill(const wire::CmBytes&);
  wire::CmBytes bytes(const wire::CmBytes&);
  wire::Result post_receive(const wire::CmPostReceive&);
  wire::Result post(const wire::CmPost&);
  wire::Completion completion(const wire::CmPoll&);

  rdma_event_channel* channel();
  CmId bound(const wire::CmAt& where);
  rdma_cm_id* far();  // throws Malformed where there is none
  ibv_qp* qp();       // likewise
  EventFacts next_request();
  uint8_t* within(uint64_t offset, uint64_t length);
  ibv_sge element(uint64_t offset, uint64_t length);

  Device& device_;
  SocketAddress own_;
  EventChannel channel_;
  CmId listener_, reserved_, id_;
  std::optional<Buffer> buffer_;
  Mr mr_;
  Ah group_;
  rdma_ud_param joined_ = {};
  std::future<EventFacts> served_;
};

}  // namespace conformance
