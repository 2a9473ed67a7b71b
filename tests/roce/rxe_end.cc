// SPDX-License-Identifier: BSD-2-Clause
//
//   rxe_end DEVICE GID_INDEX OWN_ADDRESS PEER_ADDRESS      connects to roce_end
//
// The same requests by verbs.
#include <infiniband/verbs.h>
#include <poll.h>
#include <time.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "traffic.h"

namespace verbena::roce_test {
namespace {

constexpr uint32_t kPsn = 0xfffff0;
constexpr uint8_t kNothingCame = 0xee;     // in the buffer before an answer
constexpr uint32_t kMostUnanswered = 4;  // of kRequests, where packets are lost

struct Verbs {
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
  ibv_qp* qp = nullptr;
  ibv_mr *memory_mr = nullptr, *buffer_mr = nullptr;
  std::vector<uint8_t> memory = std::vector<uint8_t>(kMemory);
  // A buffer for each request in flight, then one for each receive.
  std::vector<uint8_t> buffers = std::vector<uint8_t>((kInFlight + kReceives) * kMostBytes);
  uint8_t* buffer(uint32_t of) { return &buffers[size_t{of} * kMostBytes]; }

  void open(const char* name) {
    int count;
    ibv_device** const devices = ibv_get_device_list(&count);
    for (int i = 0; i < count; ++i)
      if (strcmp(ibv_get_device_name(devices[i]), name) == 0) context = ibv_open_device(devices[i]);
    require(context != nullptr, "the device is there");
    pd = ibv_alloc_pd(context);
    cq = ibv_create_cq(context, 256, nullptr, nullptr, 0);
    memory_mr = ibv_reg_mr(
        pd, memory.data(), memory.size(),
        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
    buffer_mr = ibv_reg_mr(pd, buffers.data(), buffers.size(), IBV_ACCESS_LOCAL_WRITE);
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = cq;
    attr.cap = {kInFlight, kReceives, 1, 1, 0};
    attr.qp_type = IBV_QPT_RC;
    attr.sq_sig_all = 1;
    qp = ibv_create_qp(pd, &attr);
    require(memory_mr != nullptr && buffer_mr != nullptr && qp != nullptr, "the objects are created");
    for (uint64_t at = 0; at < kReadableSize; ++at) memory[kReadable + at] = byte_of(kReadableBytes, at);
  }

  void connect(const Introduction& peer, const sockaddr_in& to, uint8_t gid_index) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    require(
        ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0,
        "INIT");
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = peer.qpn;
    attr.rq_psn = peer.psn;
    attr.max_dest_rd_atomic = kReadsInFlight;
    attr.min_rnr_timer = 12;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.sgid_index = gid_index;
    attr.ah_attr.grh.hop_limit = 64;
    attr.ah_attr.grh.dgid.raw[10] = attr.ah_attr.grh.dgid.raw[11] = 0xff;
    memcpy(&attr.ah_attr.grh.dgid.raw[12], &to.sin_addr, 4);
    require(ibv_modify_qp(qp, &attr,
                          IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                              IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0,
            "RTR");
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 14;
    attr.retry_cnt = attr.rnr_retry = 7;
    attr.sq_psn = kPsn;
    attr.max_rd_atomic = kReadsInFlight;
    require(ibv_modify_qp(qp, &attr,
                          IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                              IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0,
            "RTS");
  }

  void post_receive(uint32_t slot) {
    ibv_sge sge{reinterpret_cast<uintptr_t>(buffer(kInFlight + slot)), kMostBytes, buffer_mr->lkey};
    ibv_recv_wr wr{}, *bad;
    wr.wr_id = kRequests + slot;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    require(ibv_post_recv(qp, &wr, &bad) == 0, "a receive request is posted");
  }

  void post(uint32_t i, const Introduction& peer) {
    const Step one = step(i);
    uint8_t* const bytes = buffer(i % kInFlight);
    if (one.what == What::kSend || one.what == What::kWrite)
      for (uint32_t at = 0; at < one.length; ++at) bytes[at] = byte_of(i, at);
    else
      memset(bytes, kNothingCame, std::max(one.length, 8u));
    ibv_sge sge{reinterpret_cast<uintptr_t>(bytes), one.length, buffer_mr->lkey};
    ibv_send_wr wr{}, *bad;
    wr.wr_id = i;
    wr.sg_list = &sge;
    wr.num_sge = one.length != 0;
    wr.imm_data = htonl(one.immediate);
    switch (one.what) {
      case What::kSend:
        wr.opcode = one.with_immediate ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
        break;
      case What::kFetchAdd:
        wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
        wr.wr.atomic = {peer.address + one.offset, 1, 0, peer.rkey};
        break;
      default:
        wr.opcode = one.what == What::kWrite ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
        wr.wr.rdma = {peer.address + one.offset, peer.rkey};
    }
    require(ibv_post_send(qp, &wr, &bad) == 0, "a request is posted", i);
  }
};

// Where packets are lost, rxe of Linux 6.1 completes a READ or an atomic now and then without its answer: a NAK of a
// later PSN moves comp.psn past it, and when its response comes again, check_psn() (rxe_comp.c) says COMPST_COMP_ACK,
// which takes no data.
bool nothing_came(const uint8_t* bytes, uint32_t length) {
  return std::all_of(bytes, bytes + length, [](uint8_t byte) { return byte == kNothingCame; });
}

int run(const char* device, uint8_t gid_index, const char* own, const char* peer_address, bool loses_packets) {
  auto verbs = std::make_unique<Verbs>();
  verbs->open(device);
  const int peer = socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in here = address_of(own, 0), there = address_of(peer_address, 7471);
  require(bind(peer, reinterpret_cast<const sockaddr*>(&here), sizeof here) == 0, "the own address is here");
  require(connect(peer, reinterpret_cast<const sockaddr*>(&there), sizeof there) == 0, "roce_end listens");
  Introduction mine{verbs->qp->qp_num, kPsn, reinterpret_cast<uintptr_t>(verbs->memory.data()),
                    verbs->memory_mr->rkey};
  Introduction yours;
  tell(peer, &mine, sizeof mine);
  hear(peer, &yours, sizeof yours);
  verbs->connect(yours, there, gid_index);
  for (uint32_t slot = 0; slot < kReceives; ++slot) verbs->post_receive(slot);
  tell(peer, "r", 1);

  const uint32_t messages = number_of_messages(What::kSend);
  uint32_t posted = 0, completed = 0, received = 0, message = 0;
  uint64_t atomics = 0;
  uint32_t unanswered = 0;
  const time_t last = time(nullptr) + 120;
  while (completed < kRequests || received < messages) {
    require(time(nullptr) < last, "it ends within two minutes", completed);
    while (posted < kRequests && posted - completed < kInFlight) verbs->post(posted++, yours);
    ibv_wc wc;
    if (ibv_poll_cq(verbs->cq, 1, &wc) == 0) continue;
    if (wc.status != IBV_WC_SUCCESS) fprintf(stderr, "%s\n", ibv_wc_status_str(wc.status));
    require(wc.status == IBV_WC_SUCCESS, "no request fails", wc.wr_id);
    if (wc.wr_id >= kRequests) {
      while (step(message).what != What::kSend) ++message;
      const Step one = step(message);
      const auto slot = static_cast<uint32_t>(wc.wr_id - kRequests);
      require(wc.byte_len == one.length, "a SEND has its length", message);
      require(((wc.wc_flags & IBV_WC_WITH_IMM) != 0) == one.with_immediate, "a SEND has an immediate or not",
              message);
      if (one.with_immediate)
        require(ntohl(wc.imm_data) == one.immediate, "a SEND brings its immediate", message);
      for (uint32_t at = 0; at < one.length; ++at)
        require(verbs->buffer(kInFlight + slot)[at] == byte_of(message, at), "a SEND brings its bytes",
                message);
      ++message;
      ++received;
      verbs->post_receive(slot);
      continue;
    }
    require(wc.wr_id == completed, "requests complete in order", wc.wr_id);
    const Step one = step(completed);
    const uint8_t* const bytes = verbs->buffer(completed % kInFlight);
    const bool is_answered = one.what == What::kRead || one.what == What::kFetchAdd;
    if (is_answered && loses_packets && one.length != 0 && nothing_came(bytes, one.length)) {
      require(++unanswered <= kMostUnanswered, "READs and atomics are answered", completed);
      ++completed;
      atomics += one.what == What::kFetchAdd;
      continue;
    }
    if (one.what == What::kRead)
      for (uint32_t at = 0; at < one.length; ++at)
        require(bytes[at] == byte_of(kReadableBytes, one.offset - kReadable + at), "a READ brings the bytes",
                completed);
    uint64_t before;
    memcpy(&before, bytes, 8);
    if (one.what == What::kFetchAdd)
      require(before == atomics++, "an atomic brings what was there", completed);
    ++completed;
  }
  tell(peer, "d", 1);
  char word;
  hear(peer, &word, 1);
  verify_memory(verbs->memory.data());
  // roce_end may have lost our last acknowledgements: the device answers until it closes the connection.
  while (read(peer, &word, 1) > 0) continue;
  printf("rxe_end: all right; rxe completed %u of %u without an answer\n", unanswered, kRequests);
  return 0;
}

}  // namespace
}  // namespace verbena::roce_test

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  return verbena::roce_test::run(argv[1], static_cast<uint8_t>(atoi(argv[2])), argv[3], argv[4],
                                 strstr(argv[5], "lost") != nullptr);
}
