// SPDX-License-Identifier: BSD-2-Clause
#include "honest_peer.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace verbena::fuzz {
namespace {

using namespace wire;

constexpr uint64_t kNode = 78;
constexpr uint32_t kSize = 64;
constexpr uint64_t kSumAt = 1024;

}  // namespace

HonestPeer::HonestPeer(Victim& victim)
    : victim_(victim), connection_(kHonest, kNode, Target::queue_pair(victim.queues[kForHonest].number())) {}

FrameHead HonestPeer::ask(RequestHead head, const std::vector<uint8_t>& bytes, FrameKind answer,
                          std::vector<uint8_t>* said) {
  head.length = static_cast<uint32_t>(sizeof head + bytes.size());
  head.kind = FrameKind::kRequest;
  head.connection = IBV_QPT_RC | IBV_MTU_1024 << 4;
  head.target_qpn = victim_.queues[kForHonest].number();
  head.source_qpn = theirs(kForHonest);
  head.path_generation = 1;
  head.number = head.finished_below = next_;
  head.psn = next_ & 0xffffff;  // each is one packet
  head.rkey = mr_rkey(victim_.honest.mr);
  std::vector<uint8_t> frame(head.length);
  std::memcpy(frame.data(), &head, sizeof head);
  std::copy(bytes.begin(), bytes.end(), frame.begin() + sizeof head);
  require(connection_.say(frame.data(), frame.size(), [this] { victim_.poll(); }), "an honest peer stays connected");
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  for (;;) {
    require(std::chrono::steady_clock::now() < deadline, "an honest peer is served");
    victim_.poll();
    for (Heard& heard : connection_.hear()) {
      if (heard.head.start.kind == FrameKind::kQuery) {
        const WhereaboutsHead here{sizeof here, FrameKind::kWhereabouts, {}, heard.head.query.qpn, 1, kNode, 1, 0};
        connection_.say(&here, sizeof here, [this] { victim_.poll(); });
        continue;
      }
      require(heard.head.start.kind == answer && heard.head.answer.target_qpn == theirs(kForHonest),
              "an honest peer gets the answer to its request");
      require(heard.head.answer.number == (answer == FrameKind::kAck ? next_ + 1 : next_), "answers come in order");
      ++next_;
      *said = std::move(heard.bytes);
      return heard.head;
    }
    connection_.wait();
  }
}

void HonestPeer::require_served() {
  const std::vector<uint8_t> bytes(kSize, ++rounds_);
  std::vector<uint8_t> said;
  RequestHead head{};
  head.opcode = IBV_WR_RDMA_WRITE;
  head.size = kSize;
  head.remote_address = victim_.honest.address();
  ask(head, bytes, FrameKind::kAck, &said);
  head.opcode = IBV_WR_RDMA_READ;
  ask(head, {}, FrameKind::kReadData, &said);
  require(said == bytes, "what was written is read");

  head.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  head.size = sizeof(uint64_t);
  head.remote_address += kSumAt;
  head.compare_add = rounds_;
  const FrameHead sum = ask(head, {}, FrameKind::kAtomicAnswer, &said);
  require(sum.answer.value == sum_, "an atomic takes place once");
  sum_ += rounds_;

  victim_.post_receive_for_honest();
  head.opcode = IBV_WR_SEND_WITH_IMM;
  head.size = kSize;
  head.immediate = rounds_;
  ask(head, bytes, FrameKind::kAck, &said);
  ibv_wc wc{};
  require(victim_.poll_for_honest(&wc), "an acknowledged message is there");
  require(wc.status == IBV_WC_SUCCESS && wc.byte_len == kSize && wc.imm_data == rounds_ &&
              std::equal(bytes.begin(), bytes.end(), victim_.honest.bytes + Victim::kReceivesAt),
          "it is what was sent");
}

}  // namespace verbena::fuzz
