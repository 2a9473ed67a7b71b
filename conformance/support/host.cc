// SPDX-License-Identifier: BSD-2-Clause
//
// Hosts: creating and destroying ends. What ends do with data is in host_data.cc.
#include "support/host.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "support/stack.h"

namespace conformance {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using wire::Kind;

constexpr size_t most_ends = 1024;
constexpr int most_pkeys = 4;
constexpr uint64_t largest_buffer = uint64_t{8} << 30;

struct ServiceEntry {
  uint16_t first, last;
  std::function<std::unique_ptr<Service>(Device&)> make;
};
std::vector<ServiceEntry>& service_entries() {
  static std::vector<ServiceEntry> list;
  return list;
}

bool readable(int descriptor, milliseconds time) {
  pollfd waiting{descriptor, POLLIN, 0};
  return ::poll(&waiting, 1, static_cast<int>(time.count())) == 1;
}

void make_nonblocking(int descriptor) { fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK); }

ibv_gid gid_of(const std::array<uint8_t, 16>& bytes) {
  ibv_gid gid;
  memcpy(gid.raw, bytes.data(), sizeof gid.raw);
  return gid;
}

}  // namespace

void register_service(uint16_t first, uint16_t last, std::function<std::unique_ptr<Service>(Device&)> make) {
  service_entries().push_back({first, last, std::move(make)});
}

// A request of one kind, from bytes to bytes.
struct Host::Handler {
  Kind kind;
  std::string (*handle)(Host&, const std::string&);

  template <typename Answer, typename Request>
  static Request request_of(Answer (Host::*)(const Request&));
  template <auto method>
  static std::string call(Host& host, const std::string& request) {
    return wire::to_bytes((host.*method)(wire::from_bytes<decltype(request_of(method))>(request)));
  }
};

const Host::Handler Host::handlers[] = {
    {Kind::hello, Handler::call<&Host::hello>},
    {Kind::make, Handler::call<&Host::make>},
    {Kind::connect, Handler::call<&Host::connect>},
    {Kind::modify, Handler::call<&Host::modify>},
    {Kind::query, Handler::call<&Host::query>},
    {Kind::send, Handler::call<&Host::send>},
    {Kind::receive, Handler::call<&Host::receive>},
    {Kind::poll, Handler::call<&Host::poll>},
    {Kind::write, Handler::call<&Host::write>},
    {Kind::read, Handler::call<&Host::read>},
    {Kind::fill, Handler::call<&Host::fill>},
    {Kind::check, Handler::call<&Host::check>},
    {Kind::register_region, Handler::call<&Host::register_region>},
    {Kind::deregister_region, Handler::call<&Host::deregister_region>},
    {Kind::bind_window, Handler::call<&Host::bind_window>},
    {Kind::destroy, Handler::call<&Host::destroy>},
    {Kind::async_event, Handler::call<&Host::async_event>},
    {Kind::arm, Handler::call<&Host::arm>},
    {Kind::cq_event, Handler::call<&Host::cq_event>},
    {Kind::hammer, Handler::call<&Host::hammer>},
    {Kind::multicast, Handler::call<&Host::multicast>},
};

Host::Host(Device& device) : device_(device) { make_nonblocking(device.context()->async_fd); }
Host::~Host() = default;

std::pair<Outcome, std::string> Host::answer(Kind kind, const std::string& request) {
  try {
    for (const Handler& handler : handlers)
      if (handler.kind == kind) return {Outcome::answer, handler.handle(*this, request)};
    return {Outcome::answer,
            service_for(static_cast<uint16_t>(kind)).answer(static_cast<uint16_t>(kind), request)};
  } catch (const wire::Malformed&) {
    return {Outcome::malformed, "request " + std::to_string(static_cast<unsigned>(kind))};
  } catch (const Deviation& deviation) {
    return {Outcome::deviation, deviation.text};
  } catch (const NotClaimed& refusal) {
    return {Outcome::not_claimed, refusal.reason};
  } catch (const NotTested& gap) {
    return {Outcome::not_tested, gap.reason};
  } catch (const std::bad_alloc&) {
    return {Outcome::not_tested, "not enough memory"};
  } catch (const std::exception& error) {
    return {Outcome::deviation, error.what()};
  }
}

Service& Host::service_for(uint16_t kind) {
  const std::lock_guard lock(mutex_);
  for (const ServiceEntry& entry : service_entries()) {
    if (kind < entry.first || kind > entry.last) continue;
    auto& service = services_[entry.first];
    if (!service) service = entry.make(device_);
    return *service;
  }
  throw wire::Malformed{};
}

std::shared_ptr<HostedEnd> Host::pointer_to(uint32_t end) {
  const std::lock_guard lock(mutex_);
  const auto found = ends_.find(end);
  if (found == ends_.end()) throw wire::Malformed{};
  return found->second;
}

HostedEnd& Host::at(uint32_t end) { return *pointer_to(end); }

wire::HelloAnswer Host::hello(const wire::Hello& hello) {
  if (hello.its_magic != wire::magic) throw wire::Malformed{};
  wire::HelloAnswer answer;
  for (const auto& [name, value] : facts_of(device_)) answer.facts.push_back(name + '=' + value);
  for (const auto& [name, value] : stack_of(device_)) answer.facts.push_back(stack_prefix + name + '=' + value);
  return answer;
}

ibv_qp_cap Host::make_xrc(HostedEnd& hosted, const wire::MakeEnd& spec, ibv_srq_attr& made_queue) {
  if ((device_.attributes().device_cap_flags & IBV_DEVICE_XRC) == 0)
    throw NotClaimed{"device_cap_flags has no XRC"};
  ibv_xrcd_init_attr fresh = {};
  fresh.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  fresh.fd = -1;
  fresh.oflags = O_CREAT;
  const bool shares = hosted.lender && hosted.lender->xrcd;
  if (!shares) hosted.xrcd = Xrcd(CALL(ibv_open_xrcd(device_.context(), &fresh)));
  ibv_xrcd* const domain = shares ? hosted.lender->xrcd.get() : hosted.xrcd.get();
  if (domain == nullptr) throw Deviation{"an XRC domain; seen: " + errno_text(errno), Where::current()};
  ibv_srq_init_attr_ex queue = {};
  queue.attr = {std::min(spec.receive_depth, static_cast<uint32_t>(device_.attributes().max_srq_wr)),
                std::min(spec.receive_sges, static_cast<uint32_t>(device_.attributes().max_srq_sge)), 0};
  queue.comp_mask =
      IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  queue.srq_type = IBV_SRQT_XRC;
  queue.pd = hosted.memory().pd;
  queue.xrcd = domain;
  queue.cq = hosted.cqs().receives();
  hosted.srq = Srq(CALL(ibv_create_srq_ex(device_.context(), &queue)));
  if (!hosted.srq) throw Deviation{"an XRC SRQ; seen: " + errno_text(errno), Where::current()};
  made_queue = queue.attr;
  ibv_qp_init_attr_ex sending = {}, receiving = {};
  sending.qp_type = IBV_QPT_XRC_SEND;
  sending.comp_mask = IBV_QP_INIT_ATTR_PD;
  sending.pd = hosted.memory().pd;
  sending.send_cq = hosted.cqs().cq;
  sending.sq_sig_all = spec.signal_all ? 1 : 0;
  sending.cap = {std::min(spec.send_depth, static_cast<uint32_t>(device_.attributes().max_qp_wr)), 0,
                 std::min(spec.send_sges, static_cast<uint32_t>(device_.attributes().max_sge)), 0,
                 spec.inline_data};
  hosted.end.qp = Qp(CALL(ibv_create_qp_ex(device_.context(), &sending)));
  receiving.qp_type = IBV_QPT_XRC_RECV;
  receiving.comp_mask = IBV_QP_INIT_ATTR_XRCD;
  receiving.xrcd = domain;
  hosted.receiver = Qp(CALL(ibv_create_qp_ex(device_.context(), &receiving)));
  if (!hosted.end.qp || !hosted.receiver)
    throw Deviation{"XRC QPs; seen: " + errno_text(errno), Where::current()};
  return sending.cap;
}

wire::EndFacts Host::make(const wire::MakeEnd& spec) {
  if (spec.buffer == 0 || spec.buffer > largest_buffer || spec.cq_entries < 1) throw wire::Malformed{};
  auto hosted = std::make_shared<HostedEnd>(spec.shares == 0 ? spec.buffer : 1);
  End& end = hosted->end;
  if (spec.shares != 0) hosted->lender = pointer_to(spec.shares);
  if (hosted->lender && hosted->lender->lender) hosted->lender = hosted->lender->lender;
  if (spec.channel) {
    hosted->channel = make_channel(device_);
    make_nonblocking(hosted->channel->fd);
  }
  if (!hosted->lender) end.pd = make_pd(device_);
  hosted->uses_lenders_cqs = hosted->lender && spec.shares_cqs;
  if (!hosted->uses_lenders_cqs) end.cq = make_cq(device_, spec.cq_entries, hosted->channel);
  if (spec.separate_cqs && !hosted->uses_lenders_cqs)
    end.receive_cq = make_cq(device_, spec.cq_entries, hosted->channel);
  ibv_pd* pd = hosted->memory().pd;
  ibv_qp_cap made = {};
  ibv_srq_attr queue = {};
  if (spec.type == IBV_QPT_XRC_SEND) {
    made = make_xrc(*hosted, spec, queue);
  } else {
    if (spec.srq)
      hosted->srq = make_srq(device_, pd, spec.receive_depth, spec.receive_sges, Where::current(), &queue);
    const QpSpec qp{spec.type,         spec.send_depth,   spec.receive_depth,
                    spec.send_sges,    spec.receive_sges, spec.inline_data,
                    hosted->srq.get(), spec.signal_all,   nullptr};
    end.qp = make_qp(pd, hosted->cqs().cq, hosted->cqs().receives(), qp, Where::current(), &made);
  }
  // The QP first: a device without this type may not have the region's rights either.
  if (!hosted->lender)
    end.mr = make_mr_of(spec.type, end.pd, end.buffer, claimed_access(device_, spec.access));
  wire::EndFacts& facts = hosted->facts;
  facts.qpn = end.qp->qp_num;
  facts.receiving_qpn = hosted->receiving()->qp_num;
  if (spec.type == IBV_QPT_XRC_SEND && ibv_get_srq_num(hosted->srq, &facts.srqn) != 0)
    throw Deviation{"ibv_get_srq_num failed", Where::current()};
  facts.lid = device_.port().lid;
  std::copy(std::begin(device_.gid().raw), std::end(device_.gid().raw), facts.gid.begin());
  facts.mtu = device_.port().active_mtu;
  facts.address = hosted->memory().buffer.address();
  facts.length = hosted->memory().buffer.size();
  facts.lkey = hosted->memory().mr->lkey;
  facts.rkey = hosted->memory().mr->rkey;
  facts.send_depth = made.max_send_wr, facts.receive_depth = made.max_recv_wr;
  facts.send_sges = made.max_send_sge, facts.receive_sges = made.max_recv_sge;
  facts.inline_data = made.max_inline_data;
  if (hosted->srq) facts.receive_depth = queue.max_wr, facts.receive_sges = queue.max_sge;
  facts.atomics = device_.attributes().atomic_cap;
  facts.largest = device_.port().max_msg_sz;
  facts.reads_as_responder = static_cast<uint32_t>(device_.attributes().max_qp_rd_atom);
  facts.reads_as_requester = static_cast<uint32_t>(device_.attributes().max_qp_init_rd_atom);
  for (int i = 0; i < std::min<int>(device_.port().pkey_tbl_len, most_pkeys); ++i) {
    uint16_t pkey = 0;
    ibv_query_pkey(device_.context(), device_.port_number(), i, &pkey);
    facts.pkeys.push_back(ntohs(pkey));
  }
  const std::lock_guard lock(mutex_);
  if (ends_.size() >= most_ends) throw NotTested{"too many ends"};
  facts.end = next_++;
  return ends_.emplace(facts.end, std::move(hosted)).first->second->facts;
}

wire::Result Host::connect(const wire::Connect& how) {
  HostedEnd& hosted = at(how.end);
  const bool is_xrc = hosted.receiver;
  Path path;
  path.psn = how.psn;
  path.qkey = how.qkey;
  path.access = how.access;
  path.timeout = how.timeout, path.retry_count = how.retry_count, path.rnr_retry = how.rnr_retry;
  path.min_rnr_timer = how.min_rnr_timer, path.reads = how.reads;
  path.destination = how.other.receiving_qpn;
  ibv_qp_attr attr = attributes_for(device_, path);
  attr.path_mtu = std::min({attr.path_mtu, how.other.mtu, how.mtu});
  attr.pkey_index = how.pkey_index;
  attr.ah_attr = device_.address_of(gid_of(how.other.gid), static_cast<uint16_t>(how.other.lid));
  hosted.address = attr.ah_attr;
  bring_to(hosted.end.qp, how.state, attr);
  hosted.end.other_qpn = how.other.qpn;
  hosted.end.qkey = how.qkey;
  if (is_xrc) {
    attr.dest_qp_num = how.other.qpn;
    bring_to(hosted.receiver, how.state, attr);
    hosted.remote_srqn = how.other.srqn;
  }
  if (hosted.end.qp->qp_type != IBV_QPT_UD) return {};
  hosted.end.ah = Ah(CALL(ibv_create_ah(hosted.memory().pd, &attr.ah_attr)));
  return {hosted.end.ah ? 0 : errno};
}

wire::Result Host::modify(const wire::Modify& how) {
  HostedEnd& hosted = at(how.end);
  ibv_qp_attr attr = {};
  attr.qp_state = how.state, attr.cur_qp_state = how.current;
  attr.qp_access_flags = how.access, attr.qkey = how.qkey;
  attr.timeout = how.timeout, attr.retry_cnt = how.retry_count, attr.rnr_retry = how.rnr_retry;
  attr.min_rnr_timer = how.min_rnr_timer, attr.en_sqd_async_notify = how.notify;
  attr.alt_ah_attr = hosted.address, attr.alt_port_num = device_.port_number();
  attr.alt_timeout = how.timeout, attr.path_mig_state = how.migration;
  const bool to_receiver = hosted.receiver && (how.mask & (IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER)) != 0;
  return {conformance::modify(to_receiver ? hosted.receiver : hosted.end.qp, attr, how.mask)};
}

wire::State Host::query(const wire::OfEnd& of) {
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init = {};
  const int error = CALL(ibv_query_qp(at(of.end).end.qp, &attr, IBV_QP_STATE, &init));
  expect_query(error);
  if (error != 0) throw Deviation{"ibv_query_qp; seen: " + errno_text(error), Where::current()};
  return {attr.qp_state, attr.sq_draining != 0};
}

wire::Result Host::destroy(const wire::Destroy& what) {
  HostedEnd& hosted = at(what.end);
  if (what.part == wire::Part::qp) {
    const int result = hosted.end.qp ? CALL(hosted.end.qp.destroy()) : 0;
    return {hosted.receiver && result == 0 ? CALL(hosted.receiver.destroy()) : result};
  }
  std::shared_ptr<HostedEnd> gone;  // destroyed without the lock
  const std::lock_guard lock(mutex_);
  gone = std::move(ends_[what.end]);
  ends_.erase(what.end);
  return {};
}

// The first event kept that concerns this end. With the lock held.
std::optional<wire::Event> Host::take_event(const HostedEnd& hosted) {
  for (auto event = events_.begin(); event != events_.end(); ++event) {
    const void* element = event->element.qp;  // whichever it is: pointers of one union
    const bool of_end = element == hosted.end.qp.get() || element == hosted.end.cq.get() ||
                        element == hosted.srq.get() || element == hosted.end.receive_cq.get() ||
                        element == hosted.receiver.get();
    if (!of_end) continue;
    const wire::Event found{true, event->event_type, true};
    events_.erase(event);
    return found;
  }
  return std::nullopt;
}

wire::Event Host::async_event(const wire::AwaitEvent& what) {
  HostedEnd& hosted = at(what.end);
  const auto deadline = Clock::now() + milliseconds(what.milliseconds);
  for (;;) {
    ibv_async_event event;
    const std::unique_lock lock(mutex_);
    while (ibv_get_async_event(device_.context(), &event) == 0) {
      trace(std::string("ibv_get_async_event: ") + ibv_event_type_str(event.event_type));
      ibv_ack_async_event(&event);
      events_.push_back(event);
    }
    if (const auto found = take_event(hosted)) return *found;
    if (Clock::now() >= deadline) return {};
    readable(device_.context()->async_fd, milliseconds(5));
  }
}

wire::Result Host::arm(const wire::Arm& how) {
  HostedEnd& hosted = at(how.end);
  ibv_cq* cq = how.receives ? hosted.cqs().receives() : hosted.cqs().cq.get();
  return {CALL(ibv_req_notify_cq(cq, how.solicited_only))};
}

wire::Event Host::cq_event(const wire::AwaitEvent& what) {
  HostedEnd& hosted = at(what.end);
  if (!hosted.channel) throw wire::Malformed{};
  if (!readable(hosted.channel->fd, milliseconds(what.milliseconds))) return {};
  ibv_cq* cq = nullptr;
  void* its_context = nullptr;
  if (CALL(ibv_get_cq_event(hosted.channel, &cq, &its_context)) != 0) return {};
  ibv_ack_cq_events(cq, 1);
  return {true, IBV_EVENT_COMM_EST, cq == hosted.end.cq.get() || cq == hosted.end.receive_cq.get()};
}

}  // namespace conformance
