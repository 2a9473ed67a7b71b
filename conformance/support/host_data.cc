// SPDX-License-Identifier: BSD-2-Clause
//
// Hosts: requests, completions, bytes and keys of their ends.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "support/host.h"
#include "support/pattern.h"

namespace conformance {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr size_t longest_list = 1u << 20;

// The bytes from `offset` on, where there are so many.
uint8_t* within(const HostedEnd& hosted, uint64_t offset, uint64_t length) {
  const uint64_t size = hosted.memory().buffer.size();
  if (offset > size || length > size - offset) throw wire::Malformed{};
  return hosted.memory().buffer.data() + offset;
}

std::vector<ibv_sge> elements_of(const HostedEnd& hosted, const std::vector<wire::Element>& elements) {
  std::vector<ibv_sge> out;
  for (const wire::Element& element : elements)
    out.push_back(
        {hosted.memory().buffer.address() + static_cast<uint64_t>(element.offset), element.length,
         element.key == wire::own_key ? hosted.memory().mr->lkey : static_cast<uint32_t>(element.key)});
  return out;
}

// The request as verbs have it; `elements` must outlive it.
ibv_send_wr work_request(const HostedEnd& hosted, const wire::SendRequest& request,
                         std::vector<ibv_sge>& elements) {
  if ((request.flags & IBV_SEND_INLINE) != 0)  // read by this very call
    for (const wire::Element& element : request.elements)
      within(hosted, static_cast<uint64_t>(element.offset), element.length);
  elements = elements_of(hosted, request.elements);
  ibv_send_wr wr = {};
  wr.wr_id = request.id;
  wr.sg_list = elements.empty() ? nullptr : elements.data();
  wr.num_sge = static_cast<int>(elements.size());
  wr.opcode = request.opcode;
  wr.send_flags = request.flags;
  wr.imm_data = htonl(request.imm);
  if (hosted.receiver) wr.qp_type.xrc.remote_srqn = request.srqn != 0 ? request.srqn : hosted.remote_srqn;
  if (hosted.end.ah) {
    wr.wr.ud = {hosted.end.ah.get(), request.qpn != 0 ? request.qpn : hosted.end.other_qpn,
                request.qkey != 0 ? request.qkey : hosted.end.qkey};
  } else if (request.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    wr.wr.atomic = {request.remote, request.compare_add, request.swap, request.rkey};
  } else if (request.opcode == IBV_WR_SEND_WITH_INV) {
    wr.invalidate_rkey = request.rkey;
  } else {
    wr.wr.rdma = {request.remote, request.rkey};
  }
  return wr;
}

wire::Completion completion_of(const ibv_wc& wc) {
  wire::Completion out;
  out.id = wc.wr_id;
  out.status = wc.status;
  out.qpn = wc.qp_num;
  if (wc.status != IBV_WC_SUCCESS) return out;  // ibv_poll_cq(3): no other field is valid
  out.opcode = wc.opcode;
  out.bytes = wc.byte_len;
  out.imm = ntohl(wc.imm_data);
  out.invalidated = wc.invalidated_rkey;
  out.source = wc.src_qp;
  out.flags = wc.wc_flags;
  out.slid = wc.slid;
  return out;
}

// Polls one; throws when ibv_poll_cq fails.
bool poll_one(ibv_cq* cq, ibv_wc& wc) {
  wc = {};
  const int polled = ibv_poll_cq(cq, 1, &wc);
  if (polled < 0)
    throw Deviation{"ibv_poll_cq; expected: not negative; seen: " + std::to_string(polled), Where::current()};
  return polled > 0;
}

// "A join request for the multicast group must be sent" (ibv_attach_mcast(3), NOTES): on Ethernet that is the
// membership of the interface behind the GID. Without one the device may deliver all the same.
int join_ip_group(Device& device, const ibv_gid& gid) {
  const bool is_ipv4 = IN6_IS_ADDR_V4MAPPED(reinterpret_cast<const in6_addr*>(device.gid().raw)) != 0;
  const int socket = ::socket(is_ipv4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return -1;
  if (is_ipv4) {
    ip_mreq request = {};
    memcpy(&request.imr_multiaddr, &gid.raw[12], 4);
    memcpy(&request.imr_interface, &device.gid().raw[12], 4);
    CALL(setsockopt(socket, IPPROTO_IP, IP_ADD_MEMBERSHIP, &request, sizeof request));
    return socket;
  }
  ibv_gid_entry entry = {};
  if (ibv_query_gid_ex(device.context(), device.port_number(), static_cast<uint32_t>(device.gid_index()),
                       &entry, 0) != 0)
    return socket;
  ipv6_mreq request = {};
  memcpy(&request.ipv6mr_multiaddr, gid.raw, 16);
  request.ipv6mr_interface = entry.ndev_ifindex;
  CALL(setsockopt(socket, IPPROTO_IPV6, IPV6_JOIN_GROUP, &request, sizeof request));
  return socket;
}

}  // namespace

Descriptor::~Descriptor() {
  if (descriptor_ >= 0) close(descriptor_);
}

wire::Result Host::multicast(const wire::Multicast& what) {
  HostedEnd& hosted = at(what.end);
  ibv_gid gid;
  memcpy(gid.raw, what.gid.data(), sizeof gid.raw);
  if (!what.attach) return {CALL(ibv_detach_mcast(hosted.end.qp, &gid, what.lid))};
  if (device_.is_ethernet() && is_multicast(gid))
    hosted.memberships.emplace_back(join_ip_group(device_, gid));
  return {CALL(ibv_attach_mcast(hosted.end.qp, &gid, what.lid))};
}

wire::Result Host::send(const wire::Send& what) {
  HostedEnd& hosted = at(what.end);
  if (what.list.empty() || what.list.size() > longest_list) throw wire::Malformed{};
  std::vector<std::vector<ibv_sge>> elements(what.list.size());
  std::vector<ibv_send_wr> list(what.list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    list[i] = work_request(hosted, what.list[i], elements[i]);
    if (i > 0) list[i - 1].next = &list[i];
  }
  ibv_send_wr* bad = nullptr;
  const std::string text = "ibv_post_send(" + std::to_string(list.size()) + " of " + name_of(list[0].opcode) +
                           ", " + send_flags_text(list[0].send_flags) + ", " +
                           std::to_string(list[0].num_sge) + " elements)";
  return {traced(text.c_str(), [&] { return ibv_post_send(hosted.end.qp, list.data(), &bad); })};
}

wire::Result Host::receive(const wire::Receive& what) {
  HostedEnd& hosted = at(what.end);
  if (what.list.empty() || what.list.size() > longest_list) throw wire::Malformed{};
  std::vector<std::vector<ibv_sge>> elements(what.list.size());
  std::vector<ibv_recv_wr> list(what.list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    elements[i] = elements_of(hosted, what.list[i].elements);
    list[i] = {what.list[i].id, nullptr, elements[i].empty() ? nullptr : elements[i].data(),
               static_cast<int>(elements[i].size())};
    if (i > 0) list[i - 1].next = &list[i];
  }
  ibv_recv_wr* bad = nullptr;
  const std::string text = "ibv_post_recv(" + std::to_string(list.size()) + " requests)";
  return {traced(text.c_str(), [&] {
    return hosted.srq ? ibv_post_srq_recv(hosted.srq, list.data(), &bad)
                      : ibv_post_recv(hosted.end.qp, list.data(), &bad);
  })};
}

wire::Completions Host::poll(const wire::Poll& what) {
  HostedEnd& hosted = at(what.end);
  ibv_cq* cq = what.receives ? hosted.cqs().receives() : hosted.cqs().cq.get();
  const auto deadline = Clock::now() + milliseconds(what.milliseconds);
  wire::Completions out;
  while (out.list.size() < what.count) {
    ibv_wc wc;
    if (poll_one(cq, wc)) {
      trace("ibv_poll_cq: " + wc_text(wc));
      out.list.push_back(completion_of(wc));
    } else if (Clock::now() >= deadline) {
      break;
    } else {
      give_way();
    }
  }
  return out;
}

wire::HammerAnswer Host::hammer(const wire::Hammer& what) {
  HostedEnd& hosted = at(what.end);
  std::vector<ibv_sge> elements;
  ibv_send_wr wr = work_request(hosted, what.request, elements);
  wr.send_flags |= IBV_SEND_SIGNALED;
  // A queue may take more than was asked for, and the CQ not. With 0 it tells nothing
  // (ibv_create_cq.at-least).
  uint32_t most = hosted.facts.send_depth;
  if (hosted.cqs().cq->cqe > 0) most = std::min(most, static_cast<uint32_t>(hosted.cqs().cq->cqe));
  const auto deadline = Clock::now() + milliseconds(what.milliseconds);
  wire::HammerAnswer answer;
  for (uint32_t posted = 0; answer.completed < what.times && Clock::now() < deadline;) {
    ibv_send_wr* bad = nullptr;
    while (posted < what.times && posted - answer.completed < most) {
      const int error = ibv_post_send(hosted.end.qp, &wr, &bad);
      if (error != 0 && posted != answer.completed) break;  // a QP that has failed may take nothing more
      if (error != 0)
        throw Deviation{"ibv_post_send; expected: 0; seen: " + errno_text(error), Where::current()};
      ++posted;
    }
    ibv_wc wc;
    if (!poll_one(hosted.cqs().cq, wc)) {
      give_way();
      continue;
    }
    ++answer.completed;
    if (wc.status == IBV_WC_SUCCESS) continue;
    answer.status = wc.status;
    break;
  }
  return answer;
}

wire::Nothing Host::write(const wire::Bytes& what) {
  memcpy(within(at(what.end), what.offset, what.bytes.size()), what.bytes.data(), what.bytes.size());
  return {};
}

wire::Bytes Host::read(const wire::Bytes& what) {
  if (what.length > wire::largest_message / 2) throw wire::Malformed{};
  wire::Bytes answer = what;
  answer.bytes.assign(reinterpret_cast<const char*>(within(at(what.end), what.offset, what.length)),
                      what.length);
  return answer;
}

wire::Nothing Host::fill(const wire::Pattern& what) {
  uint8_t* bytes = within(at(what.end), what.offset, what.length);
  if (what.seed == 0)
    memset(bytes, what.byte, what.length);
  else
    fill_pattern(bytes, what.length, what.seed, what.first);
  return {};
}

wire::Mismatch Host::check(const wire::Pattern& what) {
  const uint8_t* bytes = within(at(what.end), what.offset, what.length);
  uint64_t at = 0;
  if (what.seed != 0)
    at = differs_at(bytes, what.length, what.seed, what.first);
  else
    at = static_cast<uint64_t>(
        std::find_if(bytes, bytes + what.length, [&](uint8_t byte) { return byte != what.byte; }) - bytes);
  if (at == what.length) return {~uint64_t{0}, 0, 0};
  return {at, bytes[at], what.seed == 0 ? what.byte : pattern_byte(what.seed, what.first + at)};
}

wire::Region Host::register_region(const wire::RegisterRegion& what) {
  HostedEnd& hosted = at(what.end);
  uint8_t* bytes = within(hosted, what.offset, what.length);
  if (what.in_other_pd && !hosted.other_pd) hosted.other_pd = make_pd(device_);
  ibv_pd* pd = what.in_other_pd ? hosted.other_pd.get() : hosted.memory().pd.get();
  Mr mr(CALL((ibv_reg_mr)(pd, bytes, what.length, what.access)));
  if (!mr) return {0, 0, 0, errno};
  const wire::Region region{hosted.next_region++, mr->lkey, mr->rkey, 0};
  hosted.regions.emplace(region.region, std::move(mr));
  return region;
}

wire::Result Host::deregister_region(const wire::OfRegion& what) {
  HostedEnd& hosted = at(what.end);
  const auto found = hosted.regions.find(what.region);
  if (found == hosted.regions.end()) throw wire::Malformed{};
  const int error = CALL(found->second.destroy());
  if (error == 0) hosted.regions.erase(found);
  return {error};
}

wire::Window Host::bind_window(const wire::BindWindow& what) {
  HostedEnd& hosted = at(what.end);
  Mw mw = make_mw(hosted.memory().pd, what.second_type ? IBV_MW_TYPE_2 : IBV_MW_TYPE_1);
  const ibv_mw_bind_info info = {hosted.memory().mr, hosted.memory().buffer.address(what.offset), what.length,
                                 what.access};
  int error;
  uint32_t rkey;
  if (what.second_type) {
    rkey = ibv_inc_rkey(mw->rkey);
    ibv_send_wr wr = {}, *bad = nullptr;
    wr.opcode = IBV_WR_BIND_MW;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.bind_mw = {mw, rkey, info};
    error = CALL(ibv_post_send(hosted.end.qp, &wr, &bad));
  } else {
    ibv_mw_bind bind = {1, IBV_SEND_SIGNALED, info};
    error = CALL(ibv_bind_mw(hosted.end.qp, mw, &bind));
    rkey = mw->rkey;
  }
  if (error != 0) return {0, IBV_WC_MW_BIND_ERR};
  const ibv_wc wc = conformance::completion(hosted.cqs().cq);
  hosted.windows.push_back(std::move(mw));
  return {rkey, wc.status};
}

}  // namespace conformance
