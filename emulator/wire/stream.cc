// SPDX-License-Identifier: BSD-2-Clause
#include "wire/stream.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace verbena::wire {
namespace {

Flow flow_of_errno(int error) {
  if (error == EAGAIN || error == EWOULDBLOCK || error == EINTR) return Flow::kLater;
  return error == EFAULT ? Flow::kFault : Flow::kEnded;
}

}  // namespace

void notice_silence(int fd) {
  constexpr struct {
    int level, option, value;
  } kOptions[] = {{SOL_SOCKET, SO_KEEPALIVE, 1},
                  {IPPROTO_TCP, TCP_KEEPIDLE, 10},
                  {IPPROTO_TCP, TCP_KEEPINTVL, 5},
                  {IPPROTO_TCP, TCP_KEEPCNT, 4},
                  {IPPROTO_TCP, TCP_USER_TIMEOUT, 30'000}};
  for (const auto& [level, option, value] : kOptions) setsockopt(fd, level, option, &value, sizeof value);
}

InStream::InStream() : bytes_(new std::byte[kCapacity]) {}

void InStream::consume(size_t count) {
  begin_ += count;
  if (begin_ == end_) begin_ = end_ = 0;
}

Flow InStream::receive(int fd, size_t most, bool* all) {
  if (begin_ != 0 && kCapacity - end_ < kCapacity / 2) {
    std::memmove(bytes_.get(), bytes_.get() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  const size_t room = std::min(most, kCapacity - end_);
  *all = false;
  if (room == 0) return Flow::kLater;
  const long got = syscall(SYS_recvfrom, fd, bytes_.get() + end_, room, MSG_DONTWAIT, nullptr, nullptr);
  if (got < 0) return flow_of_errno(errno);
  if (got == 0) return Flow::kEnded;
  end_ += static_cast<size_t>(got);
  *all = static_cast<size_t>(got) < room;
  return Flow::kMoved;
}

Flow InStream::receive_into(int fd, const iovec* ranges, size_t count, size_t size, size_t taste,
                            size_t* moved) {
  iovec all[kMaxRanges + 1];
  count = std::min(count, kMaxRanges);
  std::copy_n(ranges, count, all);
  all[count] = {bytes_.get(), taste};
  msghdr message{};
  message.msg_iov = all;
  message.msg_iovlen = count + 1;
  *moved = 0;
  const long got = syscall(SYS_recvmsg, fd, &message, MSG_DONTWAIT);
  if (got < 0) return flow_of_errno(errno);
  if (got == 0) return Flow::kEnded;
  *moved = std::min(static_cast<size_t>(got), size);
  begin_ = 0;
  end_ = static_cast<size_t>(got) - *moved;
  return Flow::kMoved;
}

OutStream::OutStream() : bytes_(new std::byte[kCapacity]) {}

std::byte* OutStream::append(size_t size) {
  if (size > room()) return nullptr;
  if (kCapacity - end_ < size) {
    std::memmove(bytes_.get(), bytes_.get() + begin_, end_ - begin_);
    bulk_at_ -= begin_;
    end_ -= begin_;
    begin_ = 0;
  }
  std::byte* const at = bytes_.get() + end_;
  end_ += size;
  return at;
}

void OutStream::begin_bulk(uint64_t size) {
  bulk_at_ = end_;
  bulk_size_ = bulk_left_ = size;
}

void OutStream::clear() {
  begin_ = end_ = 0;
  bulk_left_ = 0;
}

Flow OutStream::send(int fd, Ranges ranges, void* context, uint64_t* sent) {
  while (!empty()) {
    iovec all[kMaxRanges + 2];
    size_t count = 0;
    const size_t before = (bulk_left_ != 0 ? bulk_at_ : end_) - begin_;
    if (before != 0) all[count++] = {bytes_.get() + begin_, before};
    uint64_t bulk = 0;
    if (bulk_left_ != 0) {
      const size_t first = count;
      count += std::min(ranges(context, bulk_size_ - bulk_left_, all + count), kMaxRanges);
      for (size_t i = first; i < count; ++i) bulk += all[i].iov_len;
      if (bulk == bulk_left_ && bulk_at_ != end_) all[count++] = {bytes_.get() + bulk_at_, end_ - bulk_at_};
    }
    msghdr message{};
    message.msg_iov = all;
    message.msg_iovlen = count;
    const long done = count == 1 ? syscall(SYS_sendto, fd, all[0].iov_base, all[0].iov_len,
                                           MSG_DONTWAIT | MSG_NOSIGNAL, nullptr, 0)
                                 : syscall(SYS_sendmsg, fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (done < 0) {
      if (errno == EINTR) continue;
      return flow_of_errno(errno);
    }
    auto left = static_cast<size_t>(done);
    *sent += left;
    const size_t of_before = std::min(left, before);
    begin_ += of_before;
    left -= of_before;
    const uint64_t of_bulk = std::min<uint64_t>(left, bulk_left_);
    bulk_left_ -= of_bulk;
    begin_ += left - of_bulk;
    if (begin_ == end_ && bulk_left_ == 0) begin_ = end_ = 0;
  }
  return Flow::kMoved;
}

}  // namespace verbena::wire
