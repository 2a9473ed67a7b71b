// SPDX-License-Identifier: BSD-2-Clause
#include "support/ends.h"

namespace conformance {
namespace {

using Clock = std::chrono::steady_clock;

void make_end(End& end, Device& device, const EndsSpec& spec, Where where) {
  end.pd = make_pd(device, where);
  end.cq = make_cq(device, spec.cq_entries, spec.channel, where);
  if (spec.separate_cqs) end.receive_cq = make_cq(device, spec.cq_entries, spec.channel, where);
  // The QP first: a device without this type may not have the region's rights either.
  end.qp = make_qp(end.pd, end.cq, end.receives(), spec.qp, where);
  end.mr = make_mr_of(spec.qp.type, end.pd, end.buffer, claimed_access(device, spec.access), where);
}

void connect(End& end, const End& other, Device& device, const EndsSpec& spec, Where where) {
  Path path = spec.path;
  path.destination = other.qp->qp_num;
  bring_to(end.qp, IBV_QPS_RTS, attributes_for(device, path), where);
  end.other_qpn = other.qp->qp_num;
  end.qkey = path.qkey;
  if (spec.qp.type != IBV_QPT_UD) return;
  ibv_ah_attr address = device.own_address();
  end.ah = Ah(CALL(ibv_create_ah(end.pd, &address)));
  if (!end.ah) throw Deviation{"an address handle is needed; seen: null, errno " + errno_text(errno), where};
}

}  // namespace

// ibv_poll_cq(3): of a completion in error only wr_id, status, qp_num and vendor_err are valid.
std::string wc_text(const ibv_wc& wc) {
  const std::string id = ", wr_id " + std::to_string(wc.wr_id);
  if (wc.status != IBV_WC_SUCCESS)
    return name_of(wc.status) + id + ", vendor_err " + std::to_string(wc.vendor_err);
  return name_of(wc.status) + ", " + name_of(wc.opcode) + id + ", byte_len " + std::to_string(wc.byte_len);
}

std::vector<ibv_wc> completions(ibv_cq* cq, size_t count, Where where, std::chrono::milliseconds time) {
  const auto deadline = Clock::now() + scaled(time);
  std::vector<ibv_wc> out;
  while (out.size() < count) {
    ibv_wc wc = {};
    const int polled = ibv_poll_cq(cq, 1, &wc);
    if (polled > 0) {
      trace("ibv_poll_cq: " + wc_text(wc));
      out.push_back(wc);
    } else if (polled < 0) {
      throw Deviation{"ibv_poll_cq; expected: not negative; seen: " + std::to_string(polled), where};
    } else if (Clock::now() > deadline) {
      throw Deviation{"expected: " + std::to_string(count) +
                          " completions; seen: " + std::to_string(out.size()) + " within " +
                          std::to_string(scaled(time).count()) + " ms",
                      where};
    } else {
      give_way();
    }
  }
  return out;
}

ibv_wc completion(ibv_cq* cq, Where where) { return completions(cq, 1, where).front(); }

testing::AssertionResult stays_empty(ibv_cq* cq, std::chrono::milliseconds time) {
  const auto deadline = Clock::now() + scaled(time);
  do {
    ibv_wc wc;
    const int polled = ibv_poll_cq(cq, 1, &wc);
    if (polled > 0) return testing::AssertionFailure() << "expected: no completion; seen: " << wc_text(wc);
    if (polled < 0) return testing::AssertionFailure() << "ibv_poll_cq gives " << polled;
    give_way();
  } while (Clock::now() < deadline);
  return testing::AssertionSuccess();
}

ibv_send_wr End::request(ibv_wr_opcode opcode, ibv_sge* element, uint64_t id) const {
  ibv_send_wr wr = {};
  wr.wr_id = id;
  wr.sg_list = element;
  wr.num_sge = element != nullptr ? 1 : 0;
  wr.opcode = opcode;
  wr.send_flags = IBV_SEND_SIGNALED;
  if (qp->qp_type == IBV_QPT_UD) wr.wr.ud = {ah.get(), other_qpn, qkey};
  return wr;
}

ibv_send_wr End::remote(ibv_wr_opcode opcode, ibv_sge* element, const End& other, size_t offset,
                        uint64_t id) const {
  ibv_send_wr wr = request(opcode, element, id);
  if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    wr.wr.atomic.remote_addr = other.buffer.address(offset);
    wr.wr.atomic.rkey = other.mr->rkey;
  } else {
    wr.wr.rdma.remote_addr = other.buffer.address(offset);
    wr.wr.rdma.rkey = other.mr->rkey;
  }
  return wr;
}

int End::post(ibv_send_wr& wr) const {
  ibv_send_wr* bad = nullptr;
  const std::string text = "ibv_post_send(qp, " + name_of(wr.opcode) + ", " + send_flags_text(wr.send_flags) +
                           ", " + std::to_string(wr.num_sge) + " elements)";
  return traced(text.c_str(), [&] { return ibv_post_send(qp, &wr, &bad); });
}

int End::post_receive(size_t offset, size_t length, uint64_t id) const {
  ibv_sge element = sge(offset, length);
  ibv_recv_wr wr = {};
  wr.wr_id = id;
  wr.sg_list = length > 0 ? &element : nullptr;
  wr.num_sge = length > 0 ? 1 : 0;
  ibv_recv_wr* bad = nullptr;
  const std::string text = "ibv_post_recv(qp, " + std::to_string(length) + " bytes)";
  return traced(text.c_str(), [&] { return ibv_post_recv(qp, &wr, &bad); });
}

Ends::Ends(Device& device, const EndsSpec& spec, Where where) : near(spec.buffer), far(spec.buffer) {
  make_end(near, device, spec, where);
  make_end(far, device, spec, where);
  connect(near, far, device, spec, where);
  connect(far, near, device, spec, where);
}

}  // namespace conformance
