// SPDX-License-Identifier: BSD-2-Clause
//
// network_two_ends take|send --meet PATH [--atomic-writes N | --falls-silent N]: a UD and an RC queue pair at
// each end, with attributes of their own for the IP header. The two meet as ledgers do (ledger/meeting.h).
// Exit status 0; 1, a word was wrong; 2, it could not run.
//
// `send` sends a datagram for each address handle of kDatagrams, and then a message, a WRITE and a READ over
// RC. `take` prints the fields of each datagram's network header (the 40 bytes before it): "class 0xb8 hops 7
// flow 0xabcde".
//
// --atomic-writes: instead, `send` writes the numbers 1 to N to one word of the other end, one after another.
// `take` watches the word, which must not go back, and ends when it is N.
//
// --falls-silent: instead, N times, each on a new connection: `take` polls until a message has come, and then
// does not poll. `send` must get its completion all the same, without a timeout that would send the message
// again.
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <time.h>

#include <array>
#include <atomic>
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

struct Fields {
  uint8_t traffic_class, hop_limit;
  uint32_t flow_label;
};
constexpr Fields kDatagrams[] = {{0xb8, 7, 0xabcde}, {0x22, 255, 1}, {0, 64, 0x54321}};
constexpr Fields kConnected = {0x69, 3, 0x12345};  // its ECN bits and its hop limit do not count
constexpr uint32_t kQkey = 0x11111111, kPsn = 100, kGrh = 40, kSlot = 256;
constexpr uint8_t kTimeout = 20;  // 4.3 s
constexpr int kGidIndex = 1;      // the node's address
// IBV_WR_ATOMIC_WRITE of rdma-core 43.
constexpr auto kAtomicWrite = static_cast<ibv_wr_opcode>(15);
constexpr int64_t kPatience = 30'000'000'000;

struct Facts {
  ibv_gid gid;
  uint32_t datagram_qpn, connected_qpn, rkey, unused;
  uint64_t address;
};

int64_t nanoseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

class End {
 public:
  End() {
    context_ = open_first_device();
    pd_ = ibv_alloc_pd(context_);
    cq_ = ibv_create_cq(context_, 64, nullptr, nullptr, 0);
    if (pd_ == nullptr || cq_ == nullptr) give_up("a completion queue");
    region_ = ibv_reg_mr(pd_, memory_.data(), memory_.size(),
                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    if (region_ == nullptr) give_up("ibv_reg_mr");
    datagrams_ = make(IBV_QPT_UD);
    connected_ = make(IBV_QPT_RC);
    if (ibv_query_gid(context_, 1, kGidIndex, &own_.gid) != 0) give_up("ibv_query_gid");
    own_.datagram_qpn = datagrams_->qp_num;
    own_.connected_qpn = connected_->qp_num;
    own_.rkey = region_->rkey;
    own_.address = reinterpret_cast<uintptr_t>(memory_.data());
  }

  void run(const std::string& path, bool sends, uint64_t atomic_writes, uint64_t silences) {
    const int meeting = meet(path, !sends);
    std::vector<Facts> peer(1);
    tell(meeting, std::vector<Facts>{own_});
    if (!hear(meeting, peer)) give_up("the other end has gone");
    peer_ = peer[0];
    make_ready(datagrams_);
    for (uint64_t i = 0; i < silences; ++i) fall_silent(meeting, sends, static_cast<uint32_t>(i));
    if (silences != 0) return;
    connect(kPsn, kTimeout);
    if (!sends) post_receives();
    synchronise(meeting);
    if (atomic_writes != 0)
      sends ? write_numbers(atomic_writes) : watch_numbers(atomic_writes);
    else
      sends ? send() : take();
    synchronise(meeting);
  }

 private:
  void synchronise(int meeting) {
    std::vector<char> word(1);
    tell(meeting, word);
    if (!hear(meeting, word)) give_up("the other end has gone");
  }

  ibv_qp* make(ibv_qp_type type) {
    ibv_qp_init_attr init = {};
    init.send_cq = init.recv_cq = cq_;
    init.qp_type = type;
    init.sq_sig_all = 1;
    init.cap.max_send_wr = init.cap.max_recv_wr = 16;
    init.cap.max_send_sge = init.cap.max_recv_sge = 1;
    ibv_qp* const qp = ibv_create_qp(pd_, &init);
    if (qp == nullptr) give_up("a queue pair");
    initialise(qp);
    return qp;
  }

  static void initialise(ibv_qp* qp) {
    ibv_qp_attr attr = {};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qkey = kQkey;
    attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    const int last = qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
    if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | last) != 0)
      give_up("to INIT");
  }

  ibv_ah_attr address(const Fields& fields) const {
    ibv_ah_attr attr = {};
    attr.is_global = 1;
    attr.port_num = 1;
    attr.grh = {peer_.gid, fields.flow_label, kGidIndex, fields.hop_limit, fields.traffic_class};
    return attr;
  }

  static void make_ready(ibv_qp* datagrams) {
    ibv_qp_attr attr = {};
    attr.qp_state = IBV_QPS_RTR;
    if (ibv_modify_qp(datagrams, &attr, IBV_QP_STATE) != 0) give_up("UD to RTR");
    attr.qp_state = IBV_QPS_RTS;
    if (ibv_modify_qp(datagrams, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) != 0) give_up("UD to RTS");
  }

  // `timeout`: as ibv_qp_attr has it; 0 is never.
  void connect(uint32_t psn, uint8_t timeout) {
    connect_rc(connected_, address(kConnected), peer_.connected_qpn, psn, timeout);
  }

  ibv_sge slot(uint64_t number, uint32_t length) {
    return {reinterpret_cast<uintptr_t>(&memory_[number * kSlot]), length, region_->lkey};
  }

  void post_receive(ibv_qp* qp, uint64_t number) {
    ibv_sge sge = slot(number, kSlot);
    ibv_recv_wr wr = {}, *bad = nullptr;
    wr.wr_id = number;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    if (ibv_post_recv(qp, &wr, &bad) != 0) give_up("ibv_post_recv");
  }

  void post_receives() {
    for (uint64_t i = 0; i < std::size(kDatagrams); ++i) post_receive(datagrams_, i);
    post_receive(connected_, std::size(kDatagrams));
  }

  // A new connection has measured no round trip yet: nothing but the timeout would send its message again.
  void fall_silent(int meeting, bool sends, uint32_t round) {
    connect(kPsn + round, 0);
    if (!sends) post_receive(connected_, 0);
    synchronise(meeting);
    if (sends) {
      ibv_send_wr wr = {};
      wr.opcode = IBV_WR_SEND;
      post(connected_, wr);
    } else {
      complete();
    }
    synchronise(meeting);  // `take` waits here until `send` has its completion
    ibv_qp_attr attr = {};
    attr.qp_state = IBV_QPS_RESET;
    if (ibv_modify_qp(connected_, &attr, IBV_QP_STATE) != 0) give_up("to RESET");
    initialise(connected_);
    synchronise(meeting);
  }

  void write_numbers(uint64_t last) {
    for (uint64_t number = 1; number <= last; ++number) {
      std::memcpy(&memory_[8 * kSlot], &number, sizeof number);
      ibv_send_wr wr = {};
      wr.opcode = kAtomicWrite;
      wr.wr.rdma.remote_addr = peer_.address + 9 * kSlot;
      wr.wr.rdma.rkey = peer_.rkey;
      post(connected_, wr);
    }
  }

  // Polls the queue as well: so does a program that waits in memory, and its adapter may need it.
  void watch_numbers(uint64_t last) {
    const auto* const word = reinterpret_cast<const std::atomic<uint64_t>*>(&memory_[9 * kSlot]);
    uint64_t before = 0;
    for (const int64_t until = nanoseconds() + kPatience; before != last;) {
      if (nanoseconds() >= until) give_up("the last number does not come");
      ibv_wc wc;
      ibv_poll_cq(cq_, 1, &wc);
      const uint64_t now = word->load(std::memory_order_acquire);
      if (now < before || now > last) {
        std::printf("after %llu comes %llu\n", static_cast<unsigned long long>(before),
                    static_cast<unsigned long long>(now));
        std::exit(1);
      }
      before = now;
    }
    std::printf("last %llu\n", static_cast<unsigned long long>(before));
  }

  uint64_t complete() {
    for (const int64_t until = nanoseconds() + kPatience; nanoseconds() < until;) {
      ibv_wc wc = {};
      const int count = ibv_poll_cq(cq_, 1, &wc);
      if (count < 0 || (count == 1 && wc.status != IBV_WC_SUCCESS)) give_up(ibv_wc_status_str(wc.status));
      if (count == 1) return wc.wr_id;
    }
    give_up("no completion");
  }

  void post(ibv_qp* qp, ibv_send_wr wr) {
    ibv_sge sge = slot(8, 8);
    ibv_send_wr* bad = nullptr;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    if (ibv_post_send(qp, &wr, &bad) != 0) give_up("ibv_post_send");
    complete();
  }

  void send() {
    for (const Fields& fields : kDatagrams) {
      ibv_ah_attr attr = address(fields);
      ibv_ah* const ah = ibv_create_ah(pd_, &attr);
      if (ah == nullptr) give_up("ibv_create_ah");
      ibv_send_wr wr = {};
      wr.opcode = IBV_WR_SEND;
      wr.wr.ud.ah = ah;
      wr.wr.ud.remote_qpn = peer_.datagram_qpn;
      wr.wr.ud.remote_qkey = kQkey;
      post(datagrams_, wr);
    }
    for (const ibv_wr_opcode opcode : {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
      ibv_send_wr wr = {};
      wr.opcode = opcode;
      wr.wr.rdma.remote_addr = peer_.address + 8 * kSlot;
      wr.wr.rdma.rkey = peer_.rkey;
      post(connected_, wr);
    }
  }

  // A lost datagram ends the wait: the link between the two loses none.
  void take() {
    for (size_t i = 0; i <= std::size(kDatagrams); ++i) {
      const uint64_t number = complete();
      if (number == std::size(kDatagrams)) continue;
      const uint8_t* const header = &memory_[number * kSlot];
      Fields seen{header[kGrh - 19], header[kGrh - 12], 0};  // an IPv4 header, at the end
      if (header[0] >> 4 == 6) {
        uint32_t first;
        std::memcpy(&first, header, sizeof first);
        seen = {static_cast<uint8_t>(ntohl(first) >> 20), header[7], ntohl(first) & 0xfffff};
      }
      std::printf("class 0x%02x hops %u flow 0x%x\n", seen.traffic_class, seen.hop_limit, seen.flow_label);
    }
  }

  alignas(8) std::array<uint8_t, 16 * kSlot> memory_{};
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_mr* region_ = nullptr;
  ibv_qp *datagrams_ = nullptr, *connected_ = nullptr;
  Facts own_{}, peer_{};
};

}  // namespace
}  // namespace verbena::network

int main(int argc, char** argv) {
  const char* const mode = argc == 6 ? argv[4] : "";
  const bool counts = std::strcmp(mode, "--atomic-writes") == 0;
  const bool falls_silent = std::strcmp(mode, "--falls-silent") == 0;
  if ((argc != 4 && !counts && !falls_silent) || std::strcmp(argv[2], "--meet") != 0) {
    std::fprintf(stderr, "network_two_ends take|send --meet PATH [--atomic-writes N | --falls-silent N]\n");
    return 2;
  }
  static verbena::network::End end;
  const uint64_t number = argc == 6 ? std::strtoull(argv[5], nullptr, 10) : 0;
  end.run(argv[3], std::strcmp(argv[1], "send") == 0, counts ? number : 0, falls_silent ? number : 0);
  return 0;
}
