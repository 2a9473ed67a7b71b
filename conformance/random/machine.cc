// SPDX-License-Identifier: BSD-2-Clause
#include "random/machine.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>

#include "random/text.h"
#include "suite/names.h"
#include "support/transitions.h"

namespace conformance::random {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr uint32_t qkey = 0x1234;

std::optional<Finding> refused_call(const std::string& call, int error) {
  return Finding{Finding::About::kCall, call + "; expected: 0; seen: " + errno_text(error)};
}

bool makes(Device& device, ibv_qp_type type, uint32_t inline_data, uint32_t* inline_made) {
  const Pd pd(ibv_alloc_pd(device.context()));
  const Cq cq(ibv_create_cq(device.context(), 8, nullptr, nullptr, 0));
  if (!pd || !cq) return false;
  QpSpec spec;
  spec.type = type;
  spec.inline_data = inline_data;
  ibv_qp_init_attr attr = init_attributes(within_limits(device.context(), spec), cq, cq);
  const Qp qp(ibv_create_qp(pd, &attr));
  if (qp && inline_made != nullptr) *inline_made = attr.cap.max_inline_data;
  return qp;
}

unsigned flags_of(const Request& request) {
  unsigned out = 0;
  if (request.signaled) out |= IBV_SEND_SIGNALED;
  if (request.fenced) out |= IBV_SEND_FENCE;
  if (request.inlined) out |= IBV_SEND_INLINE;
  if (request.solicited) out |= IBV_SEND_SOLICITED;
  return out;
}

std::string wc_words(const ibv_wc& wc) {
  std::string out = name_of(wc.status) + ", wr_id " + std::to_string(wc.wr_id);
  if (wc.status == IBV_WC_SUCCESS)
    out += ", " + name_of(wc.opcode) + ", byte_len " + std::to_string(wc.byte_len);
  return out;
}

std::string words(const Expected& expected) {
  std::string out;
  for (const ibv_wc_status status : expected.statuses) out += (out.empty() ? "" : " or ") + name_of(status);
  out += ", wr_id " + std::to_string(expected.id);
  if (expected.statuses.count(IBV_WC_SUCCESS) != 0) out += ", " + name_of(expected.opcode);
  if (expected.bytes) out += ", byte_len " + std::to_string(*expected.bytes);
  return out;
}

}  // namespace

Claims claims_of(Device& device) {
  const ibv_device_attr& attributes = device.attributes();
  const unsigned flags = attributes.device_cap_flags;
  Claims out;
  if (makes(device, IBV_QPT_RC, 64, nullptr)) out.inline_data = 64;
  out.uc = makes(device, IBV_QPT_UC, 0, nullptr);
  out.ud = makes(device, IBV_QPT_UD, 0, nullptr);
  out.xrc = (flags & IBV_DEVICE_XRC) != 0;
  out.srq = attributes.max_srq > 0;
  out.atomics = attributes.atomic_cap != IBV_ATOMIC_NONE;
  out.window1 = (flags & IBV_DEVICE_MEM_WINDOW) != 0;
  out.window2 = (flags & (IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B)) != 0;
  out.send_with_invalidate = (flags & IBV_DEVICE_MEM_MGT_EXTENSIONS) != 0;
  out.send_sges = out.receive_sges = static_cast<uint32_t>(std::clamp(attributes.max_sge, 1, 4));
  out.srq_sges = static_cast<uint32_t>(std::clamp(attributes.max_srq_sge, 1, 4));
  out.reads = static_cast<uint32_t>(std::clamp(attributes.max_qp_rd_atom, 1, 4));
  out.mtu = 128u << device.port().active_mtu;
  out.cqe = std::min(attributes.max_cqe, 1024);
  return out;
}

Machine::Machine(Device& device, const Setup& setup, const Claims& claims)
    : device_(device), setup_(setup), claims_(claims), pd_(make_pd(device)), other_pd_(make_pd(device)) {
  for (const uint32_t size : setup.buffers) buffers_.push_back(std::make_unique<Buffer>(size));
  for (const auto& buffer : buffers_) memset(buffer->data(), 0, buffer->size());
  mrs_.resize(setup.regions.size());
  for (uint32_t i = 0; i < setup.regions.size(); ++i)
    if (run(RegisterAgain{i})) throw Deviation{"an MR is needed", Where::current()};
  for (const ibv_mw_type type : setup.windows) {
    windows_.push_back(make_mw(pd_, type));
    window_keys_.push_back(windows_.back()->rkey);
  }
  for (uint32_t i = 0; i < setup.cqs; ++i) cqs_.push_back(make_cq(device, claims.cqe));
  make_queue_pairs();
}

ibv_qp* Machine::make_xrc(const Connection& connection, uint32_t side) {
  ibv_qp_init_attr_ex attr = {};
  if (side == 0) {
    attr.qp_type = IBV_QPT_XRC_SEND;
    attr.comp_mask = IBV_QP_INIT_ATTR_PD;
    attr.pd = pd_;
    attr.send_cq = cqs_[connection.send_cq[0]];
    attr.sq_sig_all = connection.signal_all;
    attr.cap = {kDepth, 0, claims_.send_sges, 0, claims_.inline_data};
  } else {
    attr.qp_type = IBV_QPT_XRC_RECV;
    attr.comp_mask = IBV_QP_INIT_ATTR_XRCD;
    attr.xrcd = xrcd_;
  }
  return CALL(ibv_create_qp_ex(device_.context(), &attr));
}

void Machine::make_queue_pairs() {
  const auto any = [&](auto condition) {
    return std::any_of(setup_.connections.begin(), setup_.connections.end(), condition);
  };
  if (any([](auto& c) { return c.type == IBV_QPT_XRC_SEND; })) {
    ibv_xrcd_init_attr domain = {};
    domain.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    domain.fd = -1;
    domain.oflags = O_CREAT;
    xrcd_ = Xrcd(CALL(ibv_open_xrcd(device_.context(), &domain)));
    if (!xrcd_) throw Deviation{"an XRC domain; seen: " + errno_text(errno), Where::current()};
    ibv_srq_init_attr_ex queue = {};
    queue.attr = {kDepth, claims_.srq_sges, 0};
    queue.comp_mask =
        IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
    queue.srq_type = IBV_SRQT_XRC;
    queue.pd = pd_;
    queue.xrcd = xrcd_;
    queue.cq = cqs_[0];
    xrc_shared_ = Srq(CALL(ibv_create_srq_ex(device_.context(), &queue)));
    if (!xrc_shared_ || ibv_get_srq_num(xrc_shared_, &xrc_number_) != 0)
      throw Deviation{"an XRC SRQ; seen: " + errno_text(errno), Where::current()};
  }
  if (any([](auto& c) { return c.shared_receives && c.type != IBV_QPT_XRC_SEND; })) {
    ibv_srq_init_attr attr = {};
    attr.attr = {kDepth, claims_.srq_sges, 0};
    shared_ = Srq(CALL(ibv_create_srq(pd_, &attr)));
    if (!shared_) throw Deviation{"an SRQ; seen: " + errno_text(errno), Where::current()};
  }
  for (const Connection& connection : setup_.connections)
    for (uint32_t side = 0; side < 2; ++side) {
      if (connection.type == IBV_QPT_XRC_SEND) {
        qps_.emplace_back(make_xrc(connection, side));
        if (!qps_.back()) throw Deviation{"XRC QPs; seen: " + errno_text(errno), Where::current()};
        continue;
      }
      const QpSpec spec{connection.type,
                        kDepth,
                        kDepth,
                        claims_.send_sges,
                        claims_.receive_sges,
                        claims_.inline_data,
                        connection.shared_receives ? shared_.get() : nullptr,
                        connection.signal_all,
                        nullptr};
      qps_.push_back(make_qp(pd_, cqs_[connection.send_cq[side]], cqs_[connection.receive_cq[side]], spec));
    }
  for (uint32_t i = 0; i < setup_.connections.size(); ++i) connect(i);
}

void Machine::connect(uint32_t connection) {
  for (uint32_t side = 0; side < 2; ++side) {
    Path path;
    path.destination = qps_[2 * connection + (1 - side)]->qp_num;
    path.psn = 0x1000 * (connection + 1);
    path.qkey = qkey;
    path.access = static_cast<int>(setup_.connections[connection].access[side]);
    path.reads = static_cast<uint8_t>(claims_.reads);
    bring_to(qps_[2 * connection + side], IBV_QPS_RTS, attributes_for(device_, path));
  }
  if (setup_.connections[connection].type != IBV_QPT_UD || ah_) return;
  ibv_ah_attr address = device_.own_address();
  ah_ = Ah(CALL(ibv_create_ah(pd_, &address)));
  if (!ah_) throw Deviation{"an address handle; seen: " + errno_text(errno), Where::current()};
}

std::optional<Finding> Machine::run(const Step& step, Model& model) {
  if (std::holds_alternative<Settle>(step)) return settle(model);
  return std::visit(
      [&](const auto& each) -> std::optional<Finding> {
        if constexpr (std::is_same_v<std::decay_t<decltype(each)>, Settle>)
          return std::nullopt;
        else
          return run(each);
      },
      step);
}

// ---- steps ----

// A key that no region and no window has now.
uint32_t Machine::dead_key() const {
  uint32_t key = mrs_[0]->rkey ^ 0xa5a5a500;
  const auto lives = [&] {
    return std::any_of(mrs_.begin(), mrs_.end(),
                       [&](auto& mr) { return mr->lkey == key || mr->rkey == key; }) ||
           std::find(window_keys_.begin(), window_keys_.end(), key) != window_keys_.end();
  };
  while (lives()) key += 0x100;
  return key;
}

ibv_sge Machine::sge(const Element& element) const {
  const Region& region = setup_.regions[element.region];
  return {buffers_[region.buffer]->address(region.begin + element.offset), element.length,
          element.bad_key ? dead_key() : mrs_[element.region]->lkey};
}

uint64_t Machine::target_address(const Target& target) const {
  uint32_t region = target.index, offset = target.offset;
  if (target.is_window) {
    const Bind& bind = bound_.at(target.index);
    region = bind.region;
    offset += bind.offset;
  }
  const Region& of = setup_.regions[region];
  return buffers_[of.buffer]->address() + of.begin + offset;
}

std::optional<Finding> Machine::run(const PostReceives& step) {
  std::vector<std::array<ibv_sge, 4>> elements(step.list.size());
  std::vector<ibv_recv_wr> list(step.list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    const Receive& receive = step.list[i];
    for (size_t j = 0; j < receive.elements.size(); ++j) elements[i][j] = sge(receive.elements[j]);
    list[i].wr_id = receive.id;
    list[i].sg_list = elements[i].data();
    list[i].num_sge = static_cast<int>(receive.elements.size());
    list[i].next = i + 1 < list.size() ? &list[i + 1] : nullptr;
  }
  ibv_recv_wr* bad = nullptr;
  const int error = step.end   ? CALL(ibv_post_recv(qps_[*step.end], list.data(), &bad))
                    : step.xrc ? CALL(ibv_post_srq_recv(xrc_shared_, list.data(), &bad))
                               : CALL(ibv_post_srq_recv(shared_, list.data(), &bad));
  return error == 0 ? std::nullopt : refused_call(text(Step(step)), error);
}

ibv_send_wr Machine::work_request(EndIndex end, const Request& request, ibv_sge* elements) const {
  ibv_send_wr wr = {};
  wr.wr_id = request.id;
  for (size_t i = 0; i < request.elements.size(); ++i) elements[i] = sge(request.elements[i]);
  wr.sg_list = elements;
  wr.num_sge = static_cast<int>(request.elements.size());
  wr.opcode = request.opcode;
  wr.send_flags = flags_of(request);
  wr.imm_data = request.imm;
  if (request.window) wr.invalidate_rkey = window_keys_[*request.window];
  if (request.target) {
    const uint64_t address = target_address(*request.target);
    const uint32_t rkey = request.target->bad_key     ? dead_key()
                          : request.target->is_window ? window_keys_[request.target->index]
                                                      : mrs_[request.target->index]->rkey;
    if (is_atomic_operation(request.opcode))
      wr.wr.atomic = {address, request.compare_add, request.swap, rkey};
    else
      wr.wr.rdma = {address, rkey};
  }
  const ibv_qp_type type = setup_.connections[end / 2].type;
  if (type == IBV_QPT_UD)
    wr.wr.ud = {ah_.get(), qps_[other_end(end)]->qp_num, request.wrong_qkey ? qkey + 1 : qkey};
  if (type == IBV_QPT_XRC_SEND) wr.qp_type.xrc.remote_srqn = xrc_number_;
  return wr;
}

// A bind is alone in its list.
std::optional<Finding> Machine::bind(const PostSends& step) {
  const Request& request = step.list.front();
  const Bind& how = *request.bind;
  const Region& region = setup_.regions[how.region];
  const ibv_mw_bind_info info = {
      mrs_[how.region], buffers_[region.buffer]->address(region.begin + how.offset), how.length, how.access};
  ibv_mw* const window = windows_[how.window];
  const unsigned flags = flags_of(request);
  bound_[how.window] = how;
  int error = 0;
  if (setup_.windows[how.window] == IBV_MW_TYPE_1) {
    ibv_mw_bind bind = {request.id, flags, info};
    error = CALL(ibv_bind_mw(qps_[step.end], window, &bind));
    window_keys_[how.window] = window->rkey;
  } else {
    ibv_send_wr wr = {}, *bad = nullptr;
    wr.wr_id = request.id;
    wr.opcode = IBV_WR_BIND_MW;
    wr.send_flags = flags;
    window_keys_[how.window] = ibv_inc_rkey(window_keys_[how.window]);
    wr.bind_mw = {window, window_keys_[how.window], info};
    error = CALL(ibv_post_send(qps_[step.end], &wr, &bad));
  }
  return error == 0 ? std::nullopt : refused_call(text(Step(step)), error);
}

std::optional<Finding> Machine::run(const PostSends& step) {
  if (step.list.front().bind) return bind(step);
  std::vector<std::array<ibv_sge, 4>> elements(step.list.size());
  std::vector<ibv_send_wr> list;
  for (size_t i = 0; i < step.list.size(); ++i)
    list.push_back(work_request(step.end, step.list[i], elements[i].data()));
  for (size_t i = 1; i < list.size(); ++i) list[i - 1].next = &list[i];
  ibv_send_wr* bad = nullptr;
  const int error = CALL(ibv_post_send(qps_[step.end], list.data(), &bad));
  return error == 0 ? std::nullopt : refused_call(text(Step(step)), error);
}

std::optional<Finding> Machine::run(const Fill& step) {
  for (uint32_t i = 0; i < step.length; ++i)
    buffers_[step.buffer]->data()[step.begin + i] = filled_byte(step.seed, i);
  return std::nullopt;
}

std::optional<Finding> Machine::run(const RegisterAgain& step) {
  const Region& region = setup_.regions[step.region];
  if (mrs_[step.region])
    if (const int error = CALL(mrs_[step.region].destroy()); error != 0)
      return refused_call("ibv_dereg_mr(mr " + std::to_string(step.region) + ")", error);
  // Calls the function: ibv_reg_mr is a macro that drops optional access flags.
  mrs_[step.region] =
      Mr(CALL((ibv_reg_mr)(region.in_other_pd ? other_pd_ : pd_,
                           buffers_[region.buffer]->data() + region.begin, region.length, region.access)));
  return mrs_[step.region] ? std::nullopt
                           : refused_call("ibv_reg_mr(mr " + std::to_string(step.region) + ")", errno);
}

std::optional<Finding> Machine::run(const ToError& step) {
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_ERR;
  const int error = modify(qps_[step.end], attr, IBV_QP_STATE);
  return error == 0 ? std::nullopt : refused_call(text(Step(step)), error);
}

std::optional<Finding> Machine::run(const Reconnect& step) {
  for (uint32_t side = 0; side < 2; ++side) {
    ibv_qp_attr attr = {};
    attr.qp_state = IBV_QPS_RESET;
    const int error = modify(qps_[2 * step.connection + side], attr, IBV_QP_STATE);
    if (error != 0) return refused_call(text(Step(step)), error);
  }
  connect(step.connection);
  return std::nullopt;
}

// ---- what is compared ----

std::optional<Finding> Machine::settle(Model& model) {
  const Expectations& expected = model.expected();
  if (auto finding = take_completions(expected)) return finding;
  if (auto finding = compare_states(expected)) return finding;
  return compare_memory(model);
}

std::optional<Finding> Machine::compare(const Expected& expected, const ibv_wc& seen, EndIndex end) const {
  const auto differs = [&](const std::string& what) {
    return Finding{Finding::About::kCompletion, "a completion of " + end_text(end) + ": " + what +
                                                    "; expected: " + words(expected) +
                                                    "; seen: " + wc_words(seen)};
  };
  if (seen.wr_id != expected.id) return differs("another wr_id, so the order");
  if (expected.statuses.count(seen.status) == 0) return differs("the status");
  if (seen.qp_num != qps_[end]->qp_num && setup_.connections[end / 2].type != IBV_QPT_XRC_SEND)
    return differs("qp_num " + hex(seen.qp_num) + ", not " + hex(qps_[end]->qp_num));
  if (seen.status != IBV_WC_SUCCESS) return std::nullopt;
  if (seen.opcode != expected.opcode) return differs("the opcode");
  if (expected.bytes && seen.byte_len != *expected.bytes) return differs("byte_len");
  if (!expected.is_receive) return std::nullopt;
  if (((seen.wc_flags & IBV_WC_WITH_IMM) != 0) != expected.imm.has_value()) return differs("IBV_WC_WITH_IMM");
  if (expected.imm && seen.imm_data != *expected.imm)
    return differs("imm_data " + hex(seen.imm_data) + ", not " + hex(*expected.imm));
  if (((seen.wc_flags & IBV_WC_WITH_INV) != 0) != expected.invalidated.has_value())
    return differs("IBV_WC_WITH_INV");
  if (expected.invalidated && seen.invalidated_rkey != window_keys_[*expected.invalidated])
    return differs("invalidated_rkey");
  return std::nullopt;
}

std::optional<Finding> Machine::take_completions(const Expectations& expected) {
  struct Place {
    EndIndex end;
    bool is_receive;
  };
  std::map<uint64_t, Place> places;
  std::vector<size_t> next_send(qps_.size()), next_receive(qps_.size());
  size_t missing = 0;
  for (EndIndex end = 0; end < qps_.size(); ++end) {
    for (const Expected& each : expected.sends[end]) places[each.id] = {end, false};
    for (const Expected& each : expected.receives[end]) places[each.id] = {end, true};
    missing += expected.sends[end].size() + expected.receives[end].size();
  }
  const auto deadline = Clock::now() + scaled(milliseconds(5000));
  for (bool is_last_look = missing == 0;;) {
    bool came = false;
    for (const Cq& cq : cqs_) {
      ibv_wc wc = {};
      const int polled = ibv_poll_cq(cq, 1, &wc);
      if (polled < 0) return refused_call("ibv_poll_cq", -polled);
      if (polled == 0) continue;
      came = true;
      trace("ibv_poll_cq: " + wc_words(wc));
      const auto place = places.find(wc.wr_id);
      if (place == places.end())
        return Finding{Finding::About::kCompletion,
                       "expected: no completion of this request; seen: " + wc_words(wc)};
      const auto [end, is_receive] = place->second;
      const auto& queue = is_receive ? expected.receives[end] : expected.sends[end];
      size_t& next = is_receive ? next_receive[end] : next_send[end];
      if (next == queue.size())
        return Finding{Finding::About::kCompletion, "a second completion of one request: " + wc_words(wc)};
      if (auto finding = compare(queue[next++], wc, end)) return finding;
      --missing;
    }
    if (came) continue;
    if (is_last_look && missing == 0) return std::nullopt;
    is_last_look = missing == 0;
    if (missing == 0) continue;
    if (Clock::now() > deadline) break;
    give_way();
  }
  for (EndIndex end = 0; end < qps_.size(); ++end)
    for (const auto& [queue, next] :
         {std::pair(&expected.sends[end], next_send[end]), {&expected.receives[end], next_receive[end]}})
      if (next < queue->size())
        return Finding{Finding::About::kCompletion,
                       "a completion of " + end_text(end) + "; expected: " + words((*queue)[next]) +
                           "; seen: none within " + std::to_string(scaled(milliseconds(5000)).count()) +
                           " ms"};
  return std::nullopt;
}

std::optional<Finding> Machine::compare_states(const Expectations& expected) const {
  for (EndIndex end = 0; end < qps_.size(); ++end) {
    // A responder changes its state when it has refused a request, which the requester may know first.
    const auto deadline = Clock::now() + scaled(milliseconds(2000));
    ibv_qp_state seen = state_of(qps_[end]);
    while (seen != expected.states[end] && Clock::now() < deadline) give_way(), seen = state_of(qps_[end]);
    if (seen != expected.states[end])
      return Finding{Finding::About::kState, "the state of " + end_text(end) +
                                                 "; expected: " + state_name(expected.states[end]) +
                                                 "; seen: " + state_name(seen)};
  }
  return std::nullopt;
}

std::optional<Finding> Machine::compare_memory(Model& model) const {
  const auto deadline = Clock::now() + scaled(milliseconds(2000));
  for (uint32_t buffer = 0; buffer < buffers_.size(); ++buffer) {
    const auto& expected = model.memory(buffer);
    const uint8_t* const seen = buffers_[buffer]->data();
    for (size_t at = 0; at < expected.size();) {
      if (expected[at].may_be(seen[at])) {
        ++at;
      } else if (Clock::now() > deadline) {
        const std::string wanted = expected[at].is_known()
                                       ? hex(expected[at].value())
                                       : "one of " + std::to_string(expected[at].count()) + " values";
        return Finding{Finding::About::kMemory, "byte " + std::to_string(at) + " of buffer " +
                                                    std::to_string(buffer) + "; expected: " + wanted +
                                                    "; seen: " + hex(seen[at])};
      } else {
        give_way();  // UC says nothing of the arrival of a WRITE
      }
    }
    model.observe(buffer, seen);
  }
  return std::nullopt;
}

}  // namespace conformance::random
