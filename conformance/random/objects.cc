// SPDX-License-Identifier: BSD-2-Clause
#include "random/objects.h"

#include <arpa/inet.h>
#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "random/text.h"
#include "suite/names.h"
#include "support/host.h"
#include "support/transitions.h"

namespace conformance::random {
namespace {

constexpr uint32_t qkey = 0x1234;
constexpr size_t most_elements = 4, most_objects = 64, largest_buffer = 1 << 20;

std::string refused_call(const std::string& call, int error) {
  return call + "; expected: 0; seen: " + errno_text(error);
}

bool makes(Device& device, ibv_qp_type type, uint32_t inline_data) {
  const Pd pd(ibv_alloc_pd(device.context()));
  const Cq cq(ibv_create_cq(device.context(), 8, nullptr, nullptr, 0));
  if (!pd || !cq) return false;
  QpSpec spec;
  spec.type = type;
  spec.inline_data = inline_data;
  ibv_qp_init_attr attr = init_attributes(within_limits(device.context(), spec), cq, cq);
  const Qp qp(ibv_create_qp(pd, &attr));
  return qp != nullptr && attr.cap.max_inline_data >= inline_data;  // some create it, and have none
}

unsigned flags_of(const Request& request) {
  unsigned out = 0;
  if (request.signaled) out |= IBV_SEND_SIGNALED;
  if (request.fenced) out |= IBV_SEND_FENCE;
  if (request.inlined) out |= IBV_SEND_INLINE;
  if (request.solicited) out |= IBV_SEND_SOLICITED;
  return out;
}

// What a client may ask for.
void check(const Make& what) {
  const Setup& setup = what.setup;
  for (const size_t count : {setup.buffers.size(), setup.regions.size(), setup.windows.size(),
                             setup.connections.size(), size_t{setup.cqs}})
    if (count > most_objects) throw wire::Malformed{};
  for (const uint32_t size : setup.buffers)
    if (size == 0 || size > largest_buffer) throw wire::Malformed{};
  for (const Region& region : setup.regions)
    if (region.buffer >= setup.buffers.size() ||
        uint64_t{region.begin} + region.length > setup.buffers[region.buffer])
      throw wire::Malformed{};
}

}  // namespace

Claims claims_of(Device& device) {
  const ibv_device_attr& attributes = device.attributes();
  const unsigned flags = attributes.device_cap_flags;
  Claims out;
  const Pd pd = make_pd(device);
  const Cq cq = make_cq(device);
  make_qp(pd, cq);  // throws NotClaimed: programs are about RC in the first place
  if (makes(device, IBV_QPT_RC, 64)) out.inline_data = 64;
  out.uc = makes(device, IBV_QPT_UC, 0);
  out.ud = makes(device, IBV_QPT_UD, 0);
  out.xrc = (flags & IBV_DEVICE_XRC) != 0;
  out.srq = attributes.max_srq > 0;
  out.atomics = attributes.atomic_cap != IBV_ATOMIC_NONE;
  out.window1 = (flags & IBV_DEVICE_MEM_WINDOW) != 0;
  out.window2 = (flags & (IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B)) != 0;
  out.send_with_invalidate = (flags & IBV_DEVICE_MEM_MGT_EXTENSIONS) != 0;
  out.send_sges = out.receive_sges = static_cast<uint32_t>(std::clamp(attributes.max_sge, 1, 4));
  out.srq_sges = static_cast<uint32_t>(std::clamp(attributes.max_srq_sge, 1, 4));
  // Each end asks, and answers.
  const int reads = std::min(attributes.max_qp_rd_atom, attributes.max_qp_init_rd_atom);
  out.reads = static_cast<uint32_t>(std::clamp(reads, 1, 4));
  out.mtu = 128u << device.port().active_mtu;
  out.cqe = std::min(attributes.max_cqe, 1024);
  return out;
}

Objects::Objects(Device& device, const Make& what)
    : device_(device), claims_(what.claims), setup_(what.setup), sides_(what.sides) {
  check(what);
  pd_ = make_pd(device);
  other_pd_ = make_pd(device);
  for (uint32_t i = 0; i < setup_.buffers.size(); ++i) {
    buffers_.emplace_back();
    keys_.buffers.push_back(0);
    if (!has_side(side_of_buffer(i))) continue;
    buffers_[i] = std::make_unique<Buffer>(setup_.buffers[i]);
    memset(buffers_[i]->data(), 0, buffers_[i]->size());
    keys_.buffers[i] = buffers_[i]->address();
  }
  mrs_.resize(setup_.regions.size());
  keys_.lkeys.resize(mrs_.size());
  keys_.rkeys.resize(mrs_.size());
  for (uint32_t i = 0; i < mrs_.size(); ++i)
    if (has_side(side_of_buffer(setup_.regions[i].buffer)) && !carry_out(RegisterAgain{i}).empty())
      throw Deviation{"an MR is needed", Where::current()};
  windows_.resize(setup_.windows.size());
  keys_.windows.resize(windows_.size());
  keys_.bound.resize(windows_.size());
  for (uint32_t i = 0; i < windows_.size(); ++i) {
    if (!has_side(side_of_window(i))) continue;
    windows_[i] = make_mw(pd_, setup_.windows[i]);
    keys_.windows[i] = windows_[i]->rkey;
  }
  for (uint32_t i = 0; i < setup_.cqs; ++i) cqs_.push_back(make_cq(device, claims_.cqe));
  make_queue_pairs();
}

ibv_qp* Objects::make_xrc(const Connection& connection, uint32_t side) {
  ibv_qp_init_attr_ex attr = {};
  if (side == 0) {
    attr.qp_type = IBV_QPT_XRC_SEND;
    attr.comp_mask = IBV_QP_INIT_ATTR_PD;
    attr.pd = pd_;
    attr.send_cq = cqs_.at(connection.send_cq[0]);
    attr.sq_sig_all = connection.signal_all;
    attr.cap = {kDepth, 0, claims_.send_sges, 0, claims_.inline_data};
  } else {
    attr.qp_type = IBV_QPT_XRC_RECV;
    attr.comp_mask = IBV_QP_INIT_ATTR_XRCD;
    attr.xrcd = xrcd_;
  }
  return CALL(ibv_create_qp_ex(device_.context(), &attr));
}

void Objects::make_queue_pairs() {
  const auto any = [&](auto condition) {
    return std::any_of(setup_.connections.begin(), setup_.connections.end(), condition);
  };
  if (has_side(1) && any([](auto& c) { return c.type == IBV_QPT_XRC_SEND; })) {
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
    queue.cq = cqs_.at(0);
    xrc_shared_ = Srq(CALL(ibv_create_srq_ex(device_.context(), &queue)));
    if (!xrc_shared_ || ibv_get_srq_num(xrc_shared_, &keys_.xrc_number) != 0)
      throw Deviation{"an XRC SRQ; seen: " + errno_text(errno), Where::current()};
  }
  if (any([](auto& c) { return c.shared_receives && c.type != IBV_QPT_XRC_SEND; })) {
    ibv_srq_init_attr attr = {};
    attr.attr = {kDepth, claims_.srq_sges, 0};
    shared_ = Srq(CALL(ibv_create_srq(pd_, &attr)));
    if (!shared_) throw Deviation{"an SRQ; seen: " + errno_text(errno), Where::current()};
  }
  const EndIndex ends = 2 * static_cast<uint32_t>(setup_.connections.size());
  qps_.resize(ends);
  ahs_.resize(ends);
  keys_.ends.resize(ends);
  for (EndIndex end = 0; end < ends; ++end) {
    const Connection& connection = setup_.connections[end / 2];
    const uint32_t side = side_of_end(end);
    if (!has_side(side)) continue;
    if (connection.type == IBV_QPT_XRC_SEND) {
      qps_[end] = Qp(make_xrc(connection, side));
      if (!qps_[end]) throw Deviation{"XRC QPs; seen: " + errno_text(errno), Where::current()};
    } else {
      const QpSpec spec{connection.type,
                        kDepth,
                        kDepth,
                        claims_.send_sges,
                        claims_.receive_sges,
                        claims_.inline_data,
                        connection.shared_receives ? shared_.get() : nullptr,
                        connection.signal_all,
                        nullptr};
      qps_[end] = make_qp(pd_, cqs_.at(connection.send_cq[side]), cqs_.at(connection.receive_cq[side]), spec);
    }
    wire::EndFacts& facts = keys_.ends[end];
    facts.qpn = facts.receiving_qpn = qps_[end]->qp_num;
    facts.lid = device_.port().lid;
    facts.mtu = device_.port().active_mtu;
    std::copy(std::begin(device_.gid().raw), std::end(device_.gid().raw), facts.gid.begin());
  }
}

void Objects::learn(const Keys& others) {
  if (others.ends.size() != keys_.ends.size() || others.buffers.size() != keys_.buffers.size() ||
      others.lkeys.size() != keys_.lkeys.size() || others.rkeys.size() != keys_.rkeys.size() ||
      others.windows.size() != keys_.windows.size() || others.bound.size() != keys_.bound.size())
    throw wire::Malformed{};
  for (EndIndex end = 0; end < keys_.ends.size(); ++end)
    if (!has_side(side_of_end(end))) keys_.ends[end] = others.ends[end];
  for (uint32_t i = 0; i < keys_.buffers.size(); ++i)
    if (!has_side(side_of_buffer(i))) keys_.buffers[i] = others.buffers[i];
  for (uint32_t i = 0; i < keys_.rkeys.size(); ++i)
    if (!has_side(side_of_buffer(setup_.regions[i].buffer)))
      keys_.lkeys[i] = others.lkeys[i], keys_.rkeys[i] = others.rkeys[i];
  for (uint32_t i = 0; i < keys_.windows.size(); ++i)
    if (!has_side(side_of_window(i))) keys_.windows[i] = others.windows[i], keys_.bound[i] = others.bound[i];
  if (!has_side(1)) keys_.xrc_number = others.xrc_number;
}

ibv_qp* Objects::qp(EndIndex end) const {
  ibv_qp* const out = qps_.at(end);
  if (out == nullptr) throw wire::Malformed{};
  return out;
}

void Objects::connect(uint32_t connection) {
  for (const uint32_t side : {0u, 1u}) {
    if (!has_side(side)) continue;
    const EndIndex end = 2 * connection + side;
    const wire::EndFacts& other = keys_.ends.at(other_end(end));
    Path path;
    path.destination = other.qpn;
    path.psn = 0x1000 * (connection + 1);
    path.qkey = qkey;
    path.access = static_cast<int>(setup_.connections.at(connection).access[side]);
    path.reads = static_cast<uint8_t>(claims_.reads);
    ibv_gid gid;
    std::copy(other.gid.begin(), other.gid.end(), gid.raw);
    ibv_qp_attr attr = attributes_for(device_, path);
    attr.ah_attr = device_.address_of(gid, static_cast<uint16_t>(other.lid));
    attr.path_mtu = std::min(attr.path_mtu, other.mtu);
    bring_to(qp(end), IBV_QPS_RTS, attr);
    if (setup_.connections[connection].type != IBV_QPT_UD || ahs_[end]) continue;
    ahs_[end] = Ah(CALL(ibv_create_ah(pd_, &attr.ah_attr)));
    if (!ahs_[end]) throw Deviation{"an address handle; seen: " + errno_text(errno), Where::current()};
  }
}

std::string Objects::run(const Step& step) {
  return std::visit([&](const auto& each) { return carry_out(each); }, step);
}

// ---- steps ----

// A key that no region and no window has now, on either side.
uint32_t Objects::dead_key() const {
  uint32_t key = keys_.rkeys.at(0) ^ 0xa5a5a500;
  const auto lives = [&] {
    return std::find(keys_.lkeys.begin(), keys_.lkeys.end(), key) != keys_.lkeys.end() ||
           std::find(keys_.rkeys.begin(), keys_.rkeys.end(), key) != keys_.rkeys.end() ||
           std::find(keys_.windows.begin(), keys_.windows.end(), key) != keys_.windows.end();
  };
  while (lives()) key += 0x100;
  return key;
}

ibv_sge Objects::sge(const random::Element& element) const {
  const Region& region = setup_.regions.at(element.region);
  return {keys_.buffers[region.buffer] + region.begin + element.offset, element.length,
          element.bad_key ? dead_key() : keys_.lkeys[element.region]};
}

uint64_t Objects::target_address(const Target& target) const {
  uint32_t region = target.index, offset = target.offset;
  if (target.is_window) {
    const Bind& bind = keys_.bound.at(target.index);
    region = bind.region;
    offset += bind.offset;
  }
  const Region& of = setup_.regions.at(region);
  return keys_.buffers[of.buffer] + of.begin + offset;
}

std::string Objects::carry_out(const PostReceives& step) {
  std::vector<std::array<ibv_sge, most_elements>> elements(step.list.size());
  std::vector<ibv_recv_wr> list(step.list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    const Receive& receive = step.list[i];
    for (size_t j = 0; j < receive.elements.size(); ++j) elements[i].at(j) = sge(receive.elements[j]);
    list[i].wr_id = receive.id;
    list[i].sg_list = elements[i].data();
    list[i].num_sge = static_cast<int>(receive.elements.size());
    list[i].next = i + 1 < list.size() ? &list[i + 1] : nullptr;
  }
  ibv_srq* const queue = step.xrc ? xrc_shared_ : shared_;
  if (list.empty() || (!step.end && queue == nullptr)) throw wire::Malformed{};
  ibv_recv_wr* bad = nullptr;
  const int error = step.end ? CALL(ibv_post_recv(qp(*step.end), list.data(), &bad))
                             : CALL(ibv_post_srq_recv(queue, list.data(), &bad));
  return error == 0 ? std::string() : refused_call(text(Step(step)), error);
}

ibv_send_wr Objects::work_request(EndIndex end, const Request& request, ibv_sge* elements) const {
  if (request.elements.size() > most_elements) throw wire::Malformed{};
  ibv_send_wr wr = {};
  wr.wr_id = request.id;
  for (size_t i = 0; i < request.elements.size(); ++i) elements[i] = sge(request.elements[i]);
  wr.sg_list = elements;
  wr.num_sge = static_cast<int>(request.elements.size());
  wr.opcode = request.opcode;
  wr.send_flags = flags_of(request);
  wr.imm_data = htonl(request.imm);
  if (request.window) wr.invalidate_rkey = keys_.windows.at(*request.window);
  if (request.target) {
    const uint64_t address = target_address(*request.target);
    const uint32_t rkey = request.target->bad_key     ? dead_key()
                          : request.target->is_window ? keys_.windows.at(request.target->index)
                                                      : keys_.rkeys.at(request.target->index);
    if (is_atomic_operation(request.opcode))
      wr.wr.atomic = {address, request.compare_add, request.swap, rkey};
    else
      wr.wr.rdma = {address, rkey};
  }
  const ibv_qp_type type = setup_.connections.at(end / 2).type;
  if (type == IBV_QPT_UD)
    wr.wr.ud = {ahs_.at(end).get(), keys_.ends.at(other_end(end)).qpn, request.wrong_qkey ? qkey + 1 : qkey};
  if (type == IBV_QPT_XRC_SEND) wr.qp_type.xrc.remote_srqn = keys_.xrc_number;
  return wr;
}

// A bind is alone in its list.
std::string Objects::bind(const PostSends& step) {
  const Request& request = step.list.front();
  const Bind& how = *request.bind;
  const Region& region = setup_.regions.at(how.region);
  ibv_mw* const window = windows_.at(how.window);
  if (window == nullptr || !mrs_[how.region]) throw wire::Malformed{};
  const ibv_mw_bind_info info = {mrs_[how.region], keys_.buffers[region.buffer] + region.begin + how.offset,
                                 how.length, how.access};
  const unsigned flags = flags_of(request);
  keys_.bound[how.window] = how;
  int error = 0;
  if (setup_.windows[how.window] == IBV_MW_TYPE_1) {
    ibv_mw_bind bind = {request.id, flags, info};
    error = CALL(ibv_bind_mw(qp(step.end), window, &bind));
    keys_.windows[how.window] = window->rkey;
  } else {
    ibv_send_wr wr = {}, *bad = nullptr;
    wr.wr_id = request.id;
    wr.opcode = IBV_WR_BIND_MW;
    wr.send_flags = flags;
    keys_.windows[how.window] = ibv_inc_rkey(keys_.windows[how.window]);
    wr.bind_mw = {window, keys_.windows[how.window], info};
    error = CALL(ibv_post_send(qp(step.end), &wr, &bad));
    // No provider does it, and the next bind names the window by it (rdma-core providers/rxe/rxe.c,
    // wr_bind_mw(); Linux drivers/infiniband/sw/rxe/rxe_mw.c, rxe_bind_mw()).
    if (error == 0) window->rkey = keys_.windows[how.window];
  }
  return error == 0 ? std::string() : refused_call(text(Step(step)), error);
}

std::string Objects::carry_out(const PostSends& step) {
  if (step.list.empty()) throw wire::Malformed{};
  if (step.list.front().bind) return bind(step);
  std::vector<std::array<ibv_sge, most_elements>> elements(step.list.size());
  std::vector<ibv_send_wr> list;
  for (size_t i = 0; i < step.list.size(); ++i)
    list.push_back(work_request(step.end, step.list[i], elements[i].data()));
  for (size_t i = 1; i < list.size(); ++i) list[i - 1].next = &list[i];
  ibv_send_wr* bad = nullptr;
  const int error = CALL(ibv_post_send(qp(step.end), list.data(), &bad));
  return error == 0 ? std::string() : refused_call(text(Step(step)), error);
}

std::string Objects::carry_out(const Fill& step) {
  Buffer* const buffer = buffers_.at(step.buffer).get();
  if (buffer == nullptr || uint64_t{step.begin} + step.length > buffer->size()) throw wire::Malformed{};
  for (uint32_t i = 0; i < step.length; ++i) buffer->data()[step.begin + i] = filled_byte(step.seed, i);
  return {};
}

std::string Objects::carry_out(const RegisterAgain& step) {
  const Region& region = setup_.regions.at(step.region);
  Buffer* const buffer = buffers_.at(region.buffer).get();
  if (buffer == nullptr) throw wire::Malformed{};
  Mr& mr = mrs_[step.region];
  // Before the old region goes, whose key some would give to the new one. Calls the function: ibv_reg_mr is a
  // macro that drops optional access flags.
  Mr renewed(CALL((ibv_reg_mr)(region.in_other_pd ? other_pd_ : pd_, buffer->data() + region.begin,
                               region.length, region.access)));
  if (!renewed) return refused_call("ibv_reg_mr(mr " + std::to_string(step.region) + ")", errno);
  if (mr)
    if (const int error = CALL(mr.destroy()); error != 0)
      return refused_call("ibv_dereg_mr(mr " + std::to_string(step.region) + ")", error);
  mr = std::move(renewed);
  keys_.lkeys[step.region] = mr->lkey;
  keys_.rkeys[step.region] = mr->rkey;
  return {};
}

std::string Objects::carry_out(const ToError& step) {
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_ERR;
  const int error = modify(qp(step.end), attr, IBV_QP_STATE);
  return error == 0 ? std::string() : refused_call(text(Step(step)), error);
}

// Its ends go to RESET. They are connected when both are there.
std::string Objects::carry_out(const Reconnect& step) {
  for (const uint32_t side : {0u, 1u}) {
    if (!has_side(side)) continue;
    ibv_qp_attr attr = {};
    attr.qp_state = IBV_QPS_RESET;
    const int error = modify(qp(2 * step.connection + side), attr, IBV_QP_STATE);
    if (error != 0) return refused_call(text(Step(step)), error);
  }
  return {};
}

// ---- what is seen ----

std::vector<wire::Completion> Objects::poll() {
  std::vector<wire::Completion> out;
  for (const Cq& cq : cqs_) {
    ibv_wc wc = {};
    const int polled = ibv_poll_cq(cq, 1, &wc);
    if (polled < 0) throw Deviation{refused_call("ibv_poll_cq", -polled), Where::current()};
    if (polled == 0) continue;
    trace("ibv_poll_cq: " + wc_text(wc));
    const bool has_imm = (wc.wc_flags & IBV_WC_WITH_IMM) != 0;
    out.push_back({wc.wr_id, wc.status, wc.opcode, wc.byte_len, has_imm ? ntohl(wc.imm_data) : 0, wc.qp_num,
                   wc.src_qp, wc.wc_flags, wc.slid,
                   (wc.wc_flags & IBV_WC_WITH_INV) != 0 ? wc.invalidated_rkey : 0});
  }
  return out;
}

ibv_qp_state Objects::state(EndIndex end) { return state_of(qp(end)); }

std::string Objects::bytes(uint32_t buffer) const {
  const Buffer* const of = buffers_.at(buffer).get();
  if (of == nullptr) throw wire::Malformed{};
  return {reinterpret_cast<const char*>(of->data()), of->size()};
}

// ---- at a host ----

namespace {

class ObjectsService final : public Service {
 public:
  explicit ObjectsService(Device& device) : device_(device) {}

  std::string answer(uint16_t kind, const std::string& request) override {
    switch (static_cast<Ask>(kind)) {
      case Ask::claims:
        return wire::to_bytes(claims_of(device_));
      case Ask::make:
        objects_.reset();  // of the program before
        objects_.emplace(device_, wire::from_bytes<Make>(request));
        return wire::to_bytes(objects_->keys());
      case Ask::connect:
        objects().connect(wire::from_bytes<ConnectEnds>(request).connection);
        return {};
      case Ask::learn:
        objects().learn(wire::from_bytes<Keys>(request));
        return {};
      case Ask::run: {
        std::string refused = objects().run(wire::from_bytes<Run>(request).step);
        return wire::to_bytes(Ran{std::move(refused), objects().keys()});
      }
      case Ask::poll:
        return wire::to_bytes(wire::Completions{objects().poll()});
      case Ask::state:
        return wire::to_bytes(
            wire::State{objects().state(wire::from_bytes<wire::OfEnd>(request).end), false});
      case Ask::bytes:
        return wire::to_bytes(Content{objects().bytes(wire::from_bytes<OfBuffer>(request).buffer)});
    }
    throw wire::Malformed{};
  }

 private:
  Objects& objects() {
    if (!objects_) throw wire::Malformed{};
    return *objects_;
  }

  Device& device_;
  std::optional<Objects> objects_;
};

}  // namespace

std::unique_ptr<Service> serve_objects(Device& device) { return std::make_unique<ObjectsService>(device); }

}  // namespace conformance::random
