// SPDX-License-Identifier: BSD-2-Clause
//
// network_tags take|send --meet PATH: `send` sends messages with tags over RC (rdma-core,
// Documentation/tag_matching.md), `take` has an SRQ that matches them (IBV_SRQT_TM). The two meet as ledgers
// do (ledger/meeting.h). Messages of several lengths, each for a tag; one that has no tag; a request for a
// rendezvous, whose message the device of `take` fetches. `take` prints a line for each: "tag 7, 300 bytes".
// Exit status 0; 1: something was wrong; 2: it could not run.
#include <endian.h>
#include <infiniband/tm_types.h>
#include <infiniband/verbs.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "ledger/meeting.h"
#include "ledger/verbs.h"

namespace verbena::network {
namespace {

constexpr uint32_t kLengths[] = {0, 1, 300, 1008, 1009, 4000, 300000};
constexpr uint32_t kLongest = 300000, kHeader = sizeof(ibv_tmh), kUnexpected = 100, kRoom = 1 << 19;
constexpr uint64_t kUnexpectedTag = 99, kFetchedTag = 100;
constexpr uint32_t kPsn = 100;
constexpr int kGidIndex = 1;  // the node's address
constexpr int64_t kPatience = 30'000'000'000;

struct Facts {
  ibv_gid gid;
  uint32_t qpn, rkey;
  uint64_t address;
};

struct Seen {
  ibv_wc_opcode opcode{};
  uint64_t wr_id = 0, tag = 0;
  unsigned flags = 0;
  uint32_t length = 0;
};

int64_t nanoseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

[[noreturn]] void wrong(const char* what, uint64_t tag) {
  std::printf("tag %llu: %s\n", static_cast<unsigned long long>(tag), what);
  std::exit(1);
}

uint8_t byte_at(uint64_t seed, uint32_t index) {
  return static_cast<uint8_t>(seed + index * 7 + (index >> 8));
}

class End {
 public:
  explicit End(bool takes) : takes_(takes) {
    context_ = open_first_device();
    pd_ = ibv_alloc_pd(context_);
    ibv_cq_init_attr_ex completions = {};
    completions.cqe = 64;
    completions.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | (takes ? IBV_WC_EX_WITH_TM_INFO : 0);
    cq_ = pd_ != nullptr ? ibv_create_cq_ex(context_, &completions) : nullptr;
    if (cq_ == nullptr) give_up("a completion queue");
    region_ = ibv_reg_mr(pd_, memory_.data(), memory_.size(),
                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    if (region_ == nullptr) give_up("ibv_reg_mr");
    if (takes) make_srq();
    make_qp();
    if (ibv_query_gid(context_, 1, kGidIndex, &own_.gid) != 0) give_up("ibv_query_gid");
    own_.qpn = qp_->qp_num;
    own_.rkey = region_->rkey;
    own_.address = reinterpret_cast<uintptr_t>(memory_.data());
  }

  void run(const std::string& path) {
    meeting_ = meet(path, takes_);
    std::vector<Facts> peer(1);
    tell(meeting_, std::vector<Facts>{own_});
    if (!hear(meeting_, peer)) give_up("the other end has gone");
    connect(peer[0]);
    synchronise();
    takes_ ? take() : send();
    synchronise();
  }

 private:
  void synchronise() {
    std::vector<char> word(1);
    tell(meeting_, word);
    if (!hear(meeting_, word)) give_up("the other end has gone");
  }

  void make_srq() {
    ibv_srq_init_attr_ex attr = {};
    attr.attr = {8, 1, 0};
    attr.comp_mask =
        IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM;
    attr.srq_type = IBV_SRQT_TM;
    attr.pd = pd_;
    attr.cq = ibv_cq_ex_to_cq(cq_);
    attr.tm_cap = {4, 8};
    srq_ = ibv_create_srq_ex(context_, &attr);
    if (srq_ == nullptr) give_up("an SRQ with tags");
    ibv_sge sge = piece(kRoom, kHeader + kLongest);
    ibv_recv_wr wr = {}, *bad = nullptr;
    wr.wr_id = 1000;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    if (ibv_post_srq_recv(srq_, &wr, &bad) != 0) give_up("ibv_post_srq_recv");
  }

  void make_qp() {
    ibv_qp_init_attr init = {};
    init.send_cq = init.recv_cq = ibv_cq_ex_to_cq(cq_);
    init.srq = srq_;
    init.qp_type = IBV_QPT_RC;
    init.sq_sig_all = 1;
    init.cap = {16, srq_ != nullptr ? 0u : 16u, 1, 1, 0};
    qp_ = ibv_create_qp(pd_, &init);
    if (qp_ == nullptr) give_up("a queue pair");
    ibv_qp_attr attr = {};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    if (ibv_modify_qp(qp_, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) != 0)
      give_up("to INIT");
  }

  void connect(const Facts& peer) {
    peer_ = peer;
    ibv_ah_attr to = {};
    to.is_global = 1;
    to.port_num = 1;
    to.grh = {peer.gid, 0, kGidIndex, 64, 0};
    connect_rc(qp_, to, peer.qpn, kPsn, 20);  // 4.3 s
  }

  ibv_sge piece(uint32_t at, uint32_t length) {
    return {reinterpret_cast<uintptr_t>(memory_.data()) + at, length, region_->lkey};
  }

  Seen next() {
    ibv_poll_cq_attr attr = {};
    for (const int64_t until = nanoseconds() + kPatience; nanoseconds() < until;) {
      const int found = ibv_start_poll(cq_, &attr);
      if (found == ENOENT) continue;
      if (found != 0) give_up("ibv_start_poll");
      Seen seen;
      seen.opcode = ibv_wc_read_opcode(cq_);
      seen.wr_id = cq_->wr_id;
      seen.flags = ibv_wc_read_wc_flags(cq_);
      seen.length = ibv_wc_read_byte_len(cq_);
      if (takes_) {
        ibv_wc_tm_info info = {};
        ibv_wc_read_tm_info(cq_, &info);
        seen.tag = info.tag;
      }
      const ibv_wc_status status = cq_->status;
      ibv_end_poll(cq_);
      if (status != IBV_WC_SUCCESS) wrong(ibv_wc_status_str(status), seen.wr_id);
      return seen;
    }
    give_up("no completion");
  }

  // ---- take ----

  void add(uint64_t tag, uint32_t unexpected = 0) {
    ibv_sge sge = piece(0, kLongest);
    ibv_ops_wr wr = {}, *bad = nullptr;
    wr.opcode = IBV_WR_TAG_ADD;
    wr.wr_id = tag;
    if (unexpected != 0) wr.flags = IBV_OPS_TM_SYNC;
    wr.tm.unexpected_cnt = unexpected;
    wr.tm.add = {tag, &sge, 1, tag, UINT64_MAX};
    if (ibv_post_srq_ops(srq_, &wr, &bad) != 0) give_up("ibv_post_srq_ops");
  }

  // The message for `tag` has come when its bytes are valid.
  void expect_message(uint64_t tag, uint32_t length, uint32_t skipped) {
    Seen seen = next();
    if ((seen.flags & IBV_WC_TM_MATCH) == 0) wrong("it was not matched", tag);
    if (seen.tag != tag) wrong("another tag was reported", tag);
    while ((seen.flags & IBV_WC_TM_DATA_VALID) == 0) seen = next();
    if (seen.wr_id != tag || seen.length != length)
      wrong(("wr_id " + std::to_string(seen.wr_id) + ", " + std::to_string(seen.length) + " bytes").c_str(),
            tag);
    for (uint32_t i = 0; i < length; ++i)
      if (memory_[i] != byte_at(tag, i + skipped)) wrong("other bytes", tag);
    std::printf("tag %llu, %u bytes\n", static_cast<unsigned long long>(tag), length);
    std::fill_n(memory_.begin(), kLongest, uint8_t{0});
  }

  void take() {
    uint64_t tag = 0;
    for (const uint32_t length : kLengths) {
      add(++tag);
      synchronise();
      expect_message(tag, length, kHeader);
    }
    synchronise();
    const Seen seen = next();
    if (seen.opcode != IBV_WC_TM_RECV || (seen.flags & IBV_WC_TM_MATCH) != 0 || seen.wr_id != 1000 ||
        seen.length != kHeader + kUnexpected)
      wrong("it did not come to the receive request", kUnexpectedTag);
    std::printf("tag %llu, unexpected\n", static_cast<unsigned long long>(kUnexpectedTag));
    add(kFetchedTag, 1);
    synchronise();
    expect_message(kFetchedTag, kLongest, 0);
  }

  // ---- send ----

  void send_message(ibv_tmh_op operation, uint64_t tag, uint32_t length) {
    ibv_tmh header = {};
    header.opcode = static_cast<uint8_t>(operation);
    header.tag = htobe64(tag);
    std::memcpy(memory_.data(), &header, sizeof header);
    ibv_sge sge = piece(0, kHeader + length);
    ibv_send_wr wr = {}, *bad = nullptr;
    wr.opcode = IBV_WR_SEND;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    if (ibv_post_send(qp_, &wr, &bad) != 0) give_up("ibv_post_send");
  }

  void fill(uint64_t tag, uint32_t at) {
    for (uint32_t i = 0; i < kLongest + kHeader; ++i) memory_[at + i] = byte_at(tag, i);
  }

  void send() {
    uint64_t tag = 0;
    for (const uint32_t length : kLengths) {
      fill(++tag, 0);
      synchronise();
      send_message(IBV_TMH_EAGER, tag, length);
      next();
    }
    synchronise();
    send_message(IBV_TMH_EAGER, kUnexpectedTag, kUnexpected);
    next();
    synchronise();
    fill(kFetchedTag, kRoom);
    ibv_sge sge = piece(kHeader + 1024, 256);
    ibv_recv_wr wr = {}, *bad = nullptr;
    wr.wr_id = 7;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    if (ibv_post_recv(qp_, &wr, &bad) != 0) give_up("ibv_post_recv");
    const ibv_rvh where = {htobe64(own_.address + kRoom), htobe32(own_.rkey), htobe32(kLongest)};
    std::memcpy(memory_.data() + kHeader, &where, sizeof where);
    send_message(IBV_TMH_RNDV, kFetchedTag, sizeof where);
    Seen seen = next();
    if (seen.opcode == IBV_WC_SEND) seen = next();
    if (seen.wr_id != 7 || memory_[kHeader + 1024] != IBV_TMH_FIN) wrong("no FIN has come", kFetchedTag);
  }

  const bool takes_;
  int meeting_ = -1;
  std::vector<uint8_t> memory_ = std::vector<uint8_t>(2 * kRoom);
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_cq_ex* cq_ = nullptr;
  ibv_mr* region_ = nullptr;
  ibv_srq* srq_ = nullptr;
  ibv_qp* qp_ = nullptr;
  Facts own_{}, peer_{};
};

}  // namespace
}  // namespace verbena::network

int main(int argc, char** argv) {
  if (argc != 4 || std::strcmp(argv[2], "--meet") != 0) {
    std::fprintf(stderr, "network_tags take|send --meet PATH\n");
    return 2;
  }
  verbena::network::End(std::strcmp(argv[1], "take") == 0).run(argv[3]);
  return 0;
}
