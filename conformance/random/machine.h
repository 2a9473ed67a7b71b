// SPDX-License-Identifier: BSD-2-Clause
//
// Carries out a random program on a device, and compares what comes with what the model expects.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "random/model.h"
#include "random/program.h"
#include "support/device.h"
#include "support/objects.h"

namespace conformance::random {

struct Finding {
  enum class About : uint8_t { kCall, kCompletion, kState, kMemory };
  About about;
  std::string text;  // expected and seen
};

// What the device claims, as far as programs ask. Opens and destroys queue pairs to find out.
Claims claims_of(Device& device);

class Machine {
 public:
  // Makes the objects, and connects the queue pairs. Throws what support/objects.h does.
  Machine(Device& device, const Setup& setup, const Claims& claims);

  // Carries out one step that `model` has taken already. Nothing: as the model says so far. After Settle the
  // model is told the values of all bytes.
  std::optional<Finding> run(const Step& step, Model& model);

 private:
  std::optional<Finding> run(const PostReceives& step);
  std::optional<Finding> run(const PostSends& step);
  std::optional<Finding> run(const Fill& step);
  std::optional<Finding> run(const RegisterAgain& step);
  std::optional<Finding> run(const ToError& step);
  std::optional<Finding> run(const Reconnect& step);
  std::optional<Finding> bind(const PostSends& step);

  std::optional<Finding> settle(Model& model);
  std::optional<Finding> take_completions(const Expectations& expected);
  std::optional<Finding> compare(const Expected& expected, const ibv_wc& seen, EndIndex end) const;
  std::optional<Finding> compare_states(const Expectations& expected) const;
  std::optional<Finding> compare_memory(Model& model) const;

  void make_queue_pairs();
  void connect(uint32_t connection);
  ibv_qp* make_xrc(const Connection& connection, uint32_t side);
  ibv_sge sge(const Element& element) const;
  ibv_send_wr work_request(EndIndex end, const Request& request, ibv_sge* elements) const;
  uint32_t dead_key() const;
  uint64_t target_address(const Target& target) const;

  Device& device_;
  const Setup& setup_;
  const Claims claims_;
  Pd pd_, other_pd_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::vector<Mr> mrs_;
  std::vector<Mw> windows_;
  std::vector<uint32_t> window_keys_;
  std::map<uint32_t, Bind> bound_;
  std::vector<Cq> cqs_;
  Xrcd xrcd_;
  Srq shared_, xrc_shared_;
  uint32_t xrc_number_ = 0;
  std::vector<Qp> qps_;  // by end
  Ah ah_;
};

}  // namespace conformance::random
