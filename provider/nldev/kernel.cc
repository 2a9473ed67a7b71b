// SPDX-License-Identifier: BSD-2-Clause
#include "nldev/kernel.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <vector>

namespace verbena::nldev {
namespace {

constexpr int kPatienceMs = 1000;
constexpr size_t kRoom = 64 * 1024;  // the kernel's datagrams of a dump are shorter

// System calls: socket(2) and the others belong to the preload, which answers them for the node.
class KernelSocket {
 public:
  KernelSocket()
      : fd_(static_cast<int>(syscall(SYS_socket, AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA))) {}
  KernelSocket(const KernelSocket&) = delete;
  KernelSocket& operator=(const KernelSocket&) = delete;
  ~KernelSocket() {
    if (fd_ >= 0) syscall(SYS_close, fd_);
  }
  int error() const { return fd_ < 0 ? errno : 0; }

  int send(const std::vector<char>& request) const {
    sockaddr_nl kernel{};
    kernel.nl_family = AF_NETLINK;
    const long sent = syscall(SYS_sendto, fd_, request.data(), request.size(), 0, &kernel, sizeof kernel);
    return sent < 0 ? errno : 0;
  }
  int receive(std::string* out) const {
    pollfd readable{fd_, POLLIN, 0};
    if (poll(&readable, 1, kPatienceMs) != 1) return ETIMEDOUT;
    out->resize(kRoom);
    const long size = syscall(SYS_recvfrom, fd_, out->data(), out->size(), 0, nullptr, nullptr);
    if (size < 0) return errno;
    out->resize(static_cast<size_t>(size));
    return 0;
  }

 private:
  int fd_;
};

// The messages of one datagram for the program; *end: the reply is over, with reply->error.
std::string take_messages(const std::string& datagram, uint32_t sequence, uint32_t port, KernelReply* reply,
                          bool* end) {
  std::string kept;
  for (size_t at = 0; at + sizeof(nlmsghdr) <= datagram.size() && !*end;) {
    nlmsghdr header;
    std::memcpy(&header, datagram.data() + at, sizeof header);
    if (header.nlmsg_len < sizeof header || header.nlmsg_len > datagram.size() - at) break;
    const bool ends = header.nlmsg_type == NLMSG_ERROR || header.nlmsg_type == NLMSG_DONE;
    if (header.nlmsg_seq == sequence && ends) {
      int32_t result = 0;
      if (header.nlmsg_len >= NLMSG_HDRLEN + sizeof result)
        std::memcpy(&result, datagram.data() + at + NLMSG_HDRLEN, sizeof result);
      reply->error = result < 0 ? -result : 0;
      *end = true;
    } else {
      header.nlmsg_pid = port;
      std::string message = datagram.substr(at, header.nlmsg_len);
      std::memcpy(message.data(), &header, sizeof header);
      message.resize(NLMSG_ALIGN(message.size()), '\0');
      kept += message;
    }
    at += NLMSG_ALIGN(header.nlmsg_len);
  }
  return kept;
}

}  // namespace

KernelReply ask_kernel(const nlmsghdr& header, const char* message, uint32_t port) {
  KernelReply reply;
  const KernelSocket kernel;
  if (reply.error = kernel.error(); reply.error != 0) return reply;
  std::vector<char> request(message, message + header.nlmsg_len);
  nlmsghdr asked = header;
  asked.nlmsg_flags |= NLM_F_ACK;  // which ends the reply
  asked.nlmsg_pid = 0;
  std::memcpy(request.data(), &asked, sizeof asked);
  if (reply.error = kernel.send(request); reply.error != 0) return reply;
  for (bool end = false; !end;) {
    std::string datagram;
    if (reply.error = kernel.receive(&datagram); reply.error != 0) return reply;
    datagram = take_messages(datagram, header.nlmsg_seq, port, &reply, &end);
    if (!datagram.empty()) reply.datagrams.push_back(std::move(datagram));
  }
  return reply;
}

}  // namespace verbena::nldev
