// SPDX-License-Identifier: BSD-2-Clause
//
// The objects of a random program on one device: those of both sides, or those of one. Carries out the steps
// that are theirs.
#pragma once

#include <memory>
#include <vector>

#include "random/messages.h"
#include "support/device.h"
#include "support/host.h"
#include "support/objects.h"

namespace conformance::random {

// What the device claims, as far as programs ask. Opens and destroys queue pairs to find out.
Claims claims_of(Device& device);

// Indices come from a peer: each call throws std::out_of_range where there is no such object, and what
// support/objects.h does.
class Objects {
 public:
  Objects(Device& device, const Make& what);

  const Keys& keys() const { return keys_; }
  // Those of the other side.
  void learn(const Keys& others);
  void connect(uint32_t connection);
  // What is refused, in words; empty: nothing.
  std::string run(const Step& step);
  // At most one completion of each CQ.
  std::vector<wire::Completion> poll();
  ibv_qp_state state(EndIndex end);
  std::string bytes(uint32_t buffer) const;

 private:
  std::string carry_out(const PostReceives& step);
  std::string carry_out(const PostSends& step);
  std::string carry_out(const Fill& step);
  std::string carry_out(const RegisterAgain& step);
  std::string carry_out(const ToError& step);
  std::string carry_out(const Reconnect& step);
  std::string carry_out(const Settle&) { return {}; }
  std::string bind(const PostSends& step);

  bool has_side(uint32_t side) const { return (sides_ >> side & 1) != 0; }
  void make_queue_pairs();
  ibv_qp* make_xrc(const Connection& connection, uint32_t side);
  ibv_qp* qp(EndIndex end) const;
  ibv_sge sge(const random::Element& element) const;
  ibv_send_wr work_request(EndIndex end, const Request& request, ibv_sge* elements) const;
  uint32_t dead_key() const;
  uint64_t target_address(const Target& target) const;

  Device& device_;
  const Claims claims_;
  const Setup setup_;
  const uint32_t sides_;
  Keys keys_;  // of both sides
  Pd pd_, other_pd_;
  std::vector<std::unique_ptr<Buffer>> buffers_;  // null where the other side has it; so in what follows
  std::vector<Mr> mrs_;
  std::vector<Mw> windows_;
  std::vector<Cq> cqs_;
  Xrcd xrcd_;
  Srq shared_, xrc_shared_;
  std::vector<Qp> qps_;  // by end
  std::vector<Ah> ahs_;  // by end, of UD
};

// Answers the requests of messages.h at a host.
std::unique_ptr<Service> serve_objects(Device& device);

}  // namespace conformance::random
