// SPDX-License-Identifier: BSD-2-Clause
#include "nldev/socket.h"

#include <errno.h>
#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "nldev/commands.h"
#include "nldev/kernel.h"

namespace verbena::nldev {
namespace {

constexpr uint16_t client_of(uint16_t type) { return RDMA_NL_GET_CLIENT(type); }
constexpr uint16_t command_of(uint16_t type) { return RDMA_NL_GET_OP(type); }

bool is_network_administrator() {
  __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
  return syscall(SYS_capget, &header, data) == 0 && (data[0].effective >> CAP_NET_ADMIN & 1) != 0;
}

Request request_of(const nlmsghdr& header, const char* message, uint32_t port) {
  Request request;
  request.type = header.nlmsg_type;
  request.sequence = header.nlmsg_seq;
  request.port = port;
  request.parse_error = request.attributes.parse(message + NLMSG_HDRLEN, header.nlmsg_len - NLMSG_HDRLEN);
  request.is_administrator = is_network_administrator();
  request.node = node_of_environment();
  // A node that cannot be read has no devices, as a kernel whose drivers are gone.
  if (survey_devices(request.node, &request.devices) != 0) request.devices.clear();
  return request;
}

std::string error_message(const nlmsghdr& header, const char* message, int error,
                          const verbena_netlink_program& program) {
  const bool is_short = error == 0 || program.short_errors != 0;
  const size_t repeated = is_short ? sizeof header : header.nlmsg_len;
  nlmsgerr body = {.error = -error, .msg = header};
  std::string out(NLMSG_ALIGN(NLMSG_HDRLEN + sizeof body.error + repeated), '\0');
  const nlmsghdr head = {.nlmsg_len = static_cast<uint32_t>(NLMSG_HDRLEN + sizeof body.error + repeated),
                         .nlmsg_type = NLMSG_ERROR,
                         .nlmsg_flags = static_cast<uint16_t>(is_short ? NLM_F_CAPPED : 0),
                         .nlmsg_seq = header.nlmsg_seq,
                         .nlmsg_pid = program.port};
  std::memcpy(out.data(), &head, sizeof head);
  std::memcpy(out.data() + NLMSG_HDRLEN, &body, sizeof body);
  if (!is_short) std::memcpy(out.data() + NLMSG_HDRLEN + sizeof body.error, message, repeated);
  return out;
}

// The end of a dump, with its result.
std::string done_message(const nlmsghdr& header, int error, const verbena_netlink_program& program) {
  Writer out;
  const int32_t result = -error;
  const size_t message = out.begin(NLMSG_DONE, NLM_F_MULTI, header.nlmsg_seq, program.port);
  out.append(&result, sizeof result);
  out.end(message);
  return out.take();
}

int deliver(const verbena_netlink_program& program, const std::string& datagram) {
  const int error = program.deliver(program.owner, datagram.data(), datagram.size());
  return error == EAGAIN ? ENOBUFS : error;
}

// RDMA_NL_LS: the kernel asks a local service for paths, and this is where that would reply. Nothing was
// asked.
int answer_local_service(const Request& request) {
  if (command_of(request.type) >= RDMA_NL_LS_NUM_OPS) return EINVAL;
  return request.is_administrator ? EOPNOTSUPP : EPERM;
}

struct Outcome {
  int error = 0;
  bool is_dump = false;  // its end is the acknowledgement
  std::deque<std::string> datagrams;
};

// To the machine's kernel, which has the device.
Outcome forward(const nlmsghdr& header, const char* message, const verbena_netlink_program& program) {
  KernelReply reply = ask_kernel(header, message, program.port);
  const bool is_dump = (header.nlmsg_flags & NLM_F_DUMP) != 0;
  Outcome outcome{is_dump ? 0 : reply.error, is_dump, std::move(reply.datagrams)};
  if (is_dump) outcome.datagrams.push_back(done_message(header, reply.error, program));
  return outcome;
}

// Is it a dump of all devices, which the machine's belong to?
bool lists_devices(const Request& request) {
  return !request.devices.empty() && request.devices[0].is_beside && request.parse_error == 0 &&
         !request.attributes.has(RDMA_NLDEV_ATTR_DEV_INDEX);
}

Outcome carry_out(const nlmsghdr& header, const char* message, bool dump_is_running,
                  const verbena_netlink_program& program) {
  const Request request = request_of(header, message, program.port);
  if (client_of(header.nlmsg_type) == RDMA_NL_LS) return {answer_local_service(request), false, {}};
  const Command* command =
      client_of(header.nlmsg_type) == RDMA_NL_NLDEV ? find_command(command_of(header.nlmsg_type)) : nullptr;
  if (command == nullptr) return {EINVAL, false, {}};
  if (command->changes && !request.is_administrator) return {EPERM, false, {}};
  if (request.is_for_kernel()) return forward(header, message, program);
  if ((header.nlmsg_flags & NLM_F_DUMP) != 0) {
    if (command->dump == nullptr) return {command->changes ? EOPNOTSUPP : EINVAL, false, {}};
    if (dump_is_running) return {EBUSY, false, {}};
    Dump dump(request);
    const int error = command->dump(request, &dump);
    Outcome outcome{0, true, {}};
    if (error == 0)
      for (std::string& datagram : dump.take()) outcome.datagrams.push_back(std::move(datagram));
    if (error == 0 && lists_devices(request)) {
      KernelReply machine = ask_kernel(header, message, program.port);
      std::move(machine.datagrams.begin(), machine.datagrams.end(), std::back_inserter(outcome.datagrams));
    }
    outcome.datagrams.push_back(done_message(header, error, program));
    return outcome;
  }
  if (command->get == nullptr) return {EINVAL, false, {}};
  Writer out;
  Outcome outcome{command->get(request, &out), false, {}};
  if (outcome.error == 0) outcome.datagrams.push_back(out.take());
  return outcome;
}

}  // namespace

int Socket::request(const void* data, size_t length, const verbena_netlink_program& program) {
  const std::lock_guard lock(mutex_);
  const auto* at = static_cast<const char*>(data);
  while (length >= sizeof(nlmsghdr)) {
    nlmsghdr header;
    std::memcpy(&header, at, sizeof header);
    if (header.nlmsg_len < sizeof header || header.nlmsg_len > length) return 0;
    Outcome outcome;
    const bool is_request =
        (header.nlmsg_flags & NLM_F_REQUEST) != 0 || client_of(header.nlmsg_type) == RDMA_NL_LS;
    if (is_request && header.nlmsg_type >= NLMSG_MIN_TYPE)
      outcome = carry_out(header, at, !dump_.empty(), program);
    if (outcome.is_dump) {
      dump_ = std::move(outcome.datagrams);
      if (const int error = deliver(program, dump_.front()); error == 0)
        dump_.pop_front();
      else if (error != ENOBUFS)
        return error;
    } else {
      for (const std::string& datagram : outcome.datagrams)
        if (const int error = deliver(program, datagram); error != 0) return error;
      if (outcome.error != 0 || (header.nlmsg_flags & NLM_F_ACK) != 0)
        if (const int error = deliver(program, error_message(header, at, outcome.error, program)); error != 0)
          return error;
    }
    const size_t step = std::min<size_t>(NLMSG_ALIGN(header.nlmsg_len), length);
    at += step;
    length -= step;
  }
  return 0;
}

void Socket::more(const verbena_netlink_program& program) {
  const std::lock_guard lock(mutex_);
  if (!dump_.empty() && deliver(program, dump_.front()) == 0) dump_.pop_front();
}

void Socket::reset() {
  const std::lock_guard lock(mutex_);
  dump_.clear();
}

}  // namespace verbena::nldev
