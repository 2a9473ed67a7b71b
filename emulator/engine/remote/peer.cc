// SPDX-License-Identifier: BSD-2-Clause
#include "engine/remote/peer.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "adapter/clock.h"
#include "engine/objects/process.h"
#include "engine/remote/remote_path.h"
#include "engine/remote/remote_requester.h"
#include "fabric/fork_descriptors.h"
#include "fabric/hazards.h"
#include "fabric/kernel_epoll.h"

namespace verbena {
namespace {

using wire::AnswerHead;
using wire::Flow;

// Padding for bytes that are not there any more. Their message has failed.
constexpr size_t kFillerSize = 64 * 1024;
std::byte filler[kFillerSize];

size_t fill_up(uint64_t left, iovec* ranges) {
  size_t count = 0;
  for (; left != 0 && count < wire::OutStream::kMaxRanges; ++count) {
    ranges[count] = {filler, std::min<uint64_t>(left, kFillerSize)};
    left -= ranges[count].iov_len;
  }
  return count;
}

// ns. A socket that was full is still far from empty then: 64 KiB, the least that Linux gives a busy one,
// take 16 us at 4 GB/s.
constexpr int64_t kRoomPause = 16'000;

uint64_t bulk_size(const RemotePeer& peer) {
  uint64_t size = 0;
  for (const KeyedRange& range : peer.bulk) size += range.length;
  return size;
}

// wire::OutStream::Ranges. Keys are translated each time: they may have become invalid since.
size_t bulk_ranges(void* context, uint64_t done, iovec* ranges) {
  RemotePeer& peer = *static_cast<RemotePeer*>(context);
  const uint64_t left = bulk_size(peer) - done;
  size_t count = 0;
  for (const KeyedRange& range : peer.bulk) {
    if (peer.bulk_is_lost || count == wire::OutStream::kMaxRanges) break;
    const Translation place = translate(peer.process.view(), range.key, range.remote, range.pd, range.use,
                                        range.address, range.length, range.qpn);
    if (place.check != KeyCheck::kOk) {
      peer.bulk_is_lost = true;
      break;
    }
    if (done >= range.length) {
      done -= range.length;
      continue;
    }
    ranges[count++] = {reinterpret_cast<void*>(place.address + done), range.length - done};
    done = 0;
  }
  return peer.bulk_is_lost ? fill_up(left, ranges) : count;
}

// Appends the next answer to a READ, or its next chunk. False: there is none, or no room.
bool begin_answer(RemotePeer& peer) {
  if (peer.reads.empty() || peer.out.has_bulk()) return false;
  ReadAnswer& answer = peer.reads.front();
  const bool ours = answer.memory == &peer.process.self();
  const uint64_t left = answer.from.length - answer.done;
  const uint64_t size = std::min<uint64_t>(left, ours && left > kCopied ? wire::kChunkBytes : kCopied);
  const bool copied = size <= kCopied;
  std::byte* const at = peer.out.append(sizeof(AnswerHead) + (copied ? size : 0));
  if (at == nullptr) return false;
  AnswerHead head = answer.head;
  head.length = static_cast<uint32_t>(sizeof head + size);
  head.value = answer.done | answer.from.length << 32;
  KeyedRange part = answer.from;
  part.address += answer.done;
  part.length = size;
  if (copied) {
    const Translation place = translate(answer.memory->view(), part.key, part.remote, part.pd, part.use,
                                        part.address, part.length, part.qpn);
    const iovec to{at + sizeof head, size}, from{reinterpret_cast<void*>(place.address), size};
    if (place.check != KeyCheck::kOk ||
        answer.memory->read(peer.process.directory(), &to, 1, &from, 1) != 0) {
      peer.out.take_back(size);
      head.kind = wire::FrameKind::kNak;
      head.length = sizeof head;
      head.value = static_cast<uint64_t>(VendorError::remote_memory_gone);
      answer.done = answer.from.length - size;
    }
  } else {
    peer.bulk.assign(1, part);
    begin_bulk(peer, size);
  }
  std::memcpy(at, &head, sizeof head);
  answer.done += size;
  if (answer.done >= answer.from.length) peer.reads.pop_front();
  return true;
}

bool put_kept_answers(RemotePeer& peer) {
  bool any = false;
  while (!peer.answers.empty()) {
    std::byte* const at = peer.out.append(sizeof(AnswerHead));
    if (at == nullptr) break;
    std::memcpy(at, &peer.answers.front(), sizeof(AnswerHead));
    peer.answers.pop_front();
    any = true;
  }
  return any;
}

void watch_for_room(RemotePeer& peer, bool blocked) {
  if (peer.blocked == blocked) return;
  peer.blocked = blocked;
  epoll_event event{};
  event.events = EPOLLIN | (blocked ? uint32_t{EPOLLOUT} : 0u);
  event.data.ptr = &peer;
  if (peer.epoll >= 0) kernel_epoll_ctl(peer.epoll, EPOLL_CTL_MOD, peer.fd, &event);
}

}  // namespace

RemotePeer::RemotePeer(Process& own_process, const wire::ProcessId& peer_id)
    : process(own_process), id(peer_id) {}

RemotePeer::~RemotePeer() {
  if (fd >= 0) close_connection(fd);
}

void close_connection(int fd) {
  no_longer_keep(fd);
  syscall(SYS_close, fd);
}

std::byte* append_request(RemotePeer& peer, size_t size) {
  if (!peer.connected.load(std::memory_order_relaxed) || peer.out.room() < size + kAnswersRoom)
    return nullptr;
  peer.gathered.store(true, std::memory_order_relaxed);
  return peer.out.append(size);
}

void append_answer(RemotePeer& peer, const AnswerHead& head) {
  if (!peer.connected.load(std::memory_order_relaxed)) return;
  peer.gathered.store(true, std::memory_order_relaxed);
  if (!peer.answers.empty() || peer.out.room() < sizeof head) {
    // No correct peer can be owed more answers.
    if (peer.answers.size() == kMostAnswersKept)
      peer.broken.store(true, std::memory_order_relaxed);
    else
      peer.answers.push_back(head);
    return;
  }
  std::memcpy(peer.out.append(sizeof head), &head, sizeof head);
}

void begin_bulk(RemotePeer& peer, uint64_t size) {
  peer.bulk_is_lost = false;
  ++peer.bulks;
  peer.out.begin_bulk(size);
}

bool is_path_sound(RemotePeer& peer) {
  if (!peer.connected.load(std::memory_order_relaxed)) return false;
  int unread = 0;
  if (ioctl(peer.fd, FIONREAD, &unread) == 0 && unread > 0) return true;
  if (peer.address == kThisNode) return true;
  tcp_info info{};
  socklen_t size = sizeof info;
  // In tests the socket is not TCP: there is no network that could fail.
  if (getsockopt(peer.fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return false;
  return info.tcpi_retransmits == 0;
}

void flush(RemotePeer& peer) {
  if (!peer.connected.load(std::memory_order_relaxed) || peer.out_ended.load(std::memory_order_relaxed))
    return;
  if (peer.blocked && now_ns() < peer.try_at.load(std::memory_order_relaxed)) return;
  for (;;) {
    while (put_kept_answers(peer) || begin_answer(peer)) {
    }
    if (peer.out.empty()) break;
    HazardGuard guard;
    if (peer.out.has_bulk()) guard.begin(peer.process.hazards(), peer.process.membership().slot());
    uint64_t sent = 0;
    const Flow flow = peer.out.send(peer.fd, bulk_ranges, &peer, &sent);
    peer.bytes_out.store(peer.bytes_out.load(std::memory_order_relaxed) + sent, std::memory_order_relaxed);
    if (flow == Flow::kFault && !peer.bulk_is_lost) {
      peer.bulk_is_lost = true;
    } else if (flow == Flow::kLater) {
      peer.gathered.store(true, std::memory_order_relaxed);
      peer.try_at.store(now_ns() + kRoomPause, std::memory_order_relaxed);
      watch_for_room(peer, true);
      return;
    } else if (flow != Flow::kMoved) {
      // Whatever the error was: what has come is read first, then the end of the stream.
      syscall(SYS_shutdown, peer.fd, SHUT_RD);
      peer.out_ended.store(true, std::memory_order_relaxed);
      return;
    }
  }
  peer.gathered.store(false, std::memory_order_relaxed);
  try_at_once(peer);
  watch_for_room(peer, false);
}

}  // namespace verbena
