// SPDX-License-Identifier: BSD-2-Clause
//
// One queue pair over which numbered messages go one way at a fixed rate. The numbers show what is lost,
// doubled, out of order or damaged on an unreliable transport.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <string>
#include <vector>

namespace verbena::network {

struct FlowSetup {
  ibv_qp_type transport = IBV_QPT_RC;
  uint8_t timeout = 18, retry_count = 7;  // as of ibv_modify_qp(3)
};

class Flow {
 public:
  // What each end tells the other.
  struct Address {
    ibv_gid gid;
    uint32_t qpn, mtu;
  };

  Flow(ibv_context* context, ibv_pd* pd, ibv_cq* cq, const FlowSetup& setup, bool sends);
  Address address() const { return own_; }
  uint32_t qpn() const { return own_.qpn; }
  void connect(const Address& peer);

  // Posts one more message, unless there are many under way or it has failed.
  void post();
  void complete(const ibv_wc& wc);

  bool rests() const { return completed_ == posted_; }
  ibv_wc_status status() const { return status_; }   // the first that was not success
  uint64_t completed() const { return completed_; }  // with success; at the receiver: messages that have come
  // How far it has got: at the receiver, the number that comes next.
  uint64_t done() const { return sends_ ? completed_ : next_; }
  uint64_t posted() const { return posted_; }
  uint64_t missing() const { return missing_; }
  const std::string& fault() const { return fault_; }

 private:
  uint8_t* slot(uint64_t number);
  void post_receive();
  void check(const ibv_wc& wc);

  const FlowSetup setup_;
  const bool sends_;
  Address own_ = {};
  ibv_qp* qp_ = nullptr;
  ibv_pd* pd_;
  ibv_mr* region_ = nullptr;
  ibv_ah* ah_ = nullptr;
  uint32_t peer_qpn_ = 0;
  std::vector<uint8_t> memory_;
  uint64_t posted_ = 0, completed_ = 0, received_ = 0, next_ = 0, missing_ = 0;
  ibv_wc_status status_ = IBV_WC_SUCCESS;
  std::string fault_;
};

}  // namespace verbena::network
