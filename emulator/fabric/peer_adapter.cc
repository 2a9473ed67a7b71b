// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/peer_adapter.h"

#include <errno.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "fabric/kick.h"
#include "fabric/node.h"
#include "fabric/own_memory.h"
#include "fabric/segment_passing.h"
#include "fabric/slot_folder.h"
#include "keep_errno.h"
#include "no_cancellation.h"
#include "observe/log.h"

namespace verbena {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kPage = 4096;  // the smallest there is

size_t total(const iovec* ranges, size_t count) {
  size_t sum = 0;
  for (size_t i = 0; i < count; ++i) sum += ranges[i].iov_len;
  return sum;
}

}  // namespace

PeerAdapter::~PeerAdapter() {
  if (memory_fd_ >= 0 && !is_own_) syscall(SYS_close, memory_fd_);
}

int PeerAdapter::attach(const NodeMembership& membership, const PassedSegment& given) {
  address_ = slot_address(membership.directory(), membership.node(), slot_, generation_);
  memory_fd_ = given.memory_fd;
  // process_vm_*(2) may be allowed to one of the two processes and not to the other.
  within_reach_ = membership.memory_fd() >= 0 && memory_fd_ >= 0;
  const int error =
      mapped_.map(given.segment_fd, membership.directory().header().node_id, slot_, generation_);
  syscall(SYS_close, given.segment_fd);
  if (error != 0) return error;
  view_ = mapped_.view();
  // In another pid namespace the numbers would name other processes.
  pid_ = view_.header().pid;
  if (pid_ != given.pid) process_vm_.store(false, std::memory_order_relaxed);
  task_.store(task_of_service(membership), std::memory_order_relaxed);
  return 0;
}

void PeerAdapter::attach_self(NodeMembership& membership) {
  address_ = slot_address(membership.directory(), membership.node(), slot_, generation_);
  view_ = membership.segment().view();
  memory_fd_ = membership.memory_fd();
  is_own_ = true;
  pid_ = getpid();
  task_.store(task_of_service(membership), std::memory_order_relaxed);
}

int32_t PeerAdapter::task_of_service(const NodeMembership& membership) const {
  return static_cast<int32_t>(membership.directory().slot(slot_).holder.load(std::memory_order_relaxed));
}

int PeerAdapter::open_fifo(FifoEnd& end, const char* name) const {
  const NoCancellation guard;
  Descriptor folder;
  const int error = open_slot_folder(address_, &folder);
  return error != 0 ? error : end.open(folder.fd, name);
}

void PeerAdapter::kick() {
  const KeepErrno guard;
  std::lock_guard lock(mutex_);
  if (!kick_.is_open() && open_fifo(kick_, "kick") != 0) return wake(address_);
  const char byte = 0;
  if (kick_.write(&byte, 1) == EBADF) kick_.close();
}

void PeerAdapter::ring_doorbell() {
  // A read-modify-write: the owner that takes the doorbell once sees the entries of all who have rung it.
  view_.header().doorbell.exchange(1, std::memory_order_acq_rel);
  kick();
}

namespace {

// The index of `entry` in its table.
template <typename Entry>
uint32_t index_in(const SegmentView& view, uint64_t table, const Entry& entry) {
  const auto offset = static_cast<uint64_t>(reinterpret_cast<const std::byte*>(&entry) - view.base());
  return static_cast<uint32_t>((offset - table) / sizeof(Entry));
}

}  // namespace

void PeerAdapter::report(const SharedQp& qp) {
  view_.changes().qps.add(index_in(view_, kQpTableOffset, qp));
  ring_doorbell();
}

void PeerAdapter::report(const SharedCq& cq) {
  view_.changes().cqs.add(index_in(view_, kCqTableOffset, cq));
  ring_doorbell();
}

void PeerAdapter::report(const SharedSrq& srq) {
  view_.changes().srqs.add(index_in(view_, kSrqTableOffset, srq));
  ring_doorbell();
}

void PeerAdapter::explain(const RequestRefusal& refusal, uint32_t worker) {
  if (view_.refusals().add(refusal, worker)) ring_doorbell();
}

int PeerAdapter::notify(uint32_t channel, uint64_t record) {
  const KeepErrno guard;
  std::lock_guard lock(mutex_);
  for (int tries = 0;; ++tries) {
    auto found =
        std::find_if(channels_.begin(), channels_.end(), [&](const auto& c) { return c.first == channel; });
    if (found == channels_.end()) {
      // Channels that their owner has dropped are closed here, so that they do not accumulate.
      std::erase_if(channels_, [](const auto& c) { return c.second.is_abandoned(); });
      FifoEnd end;
      if (int error = open_fifo(end, ("c" + std::to_string(channel)).c_str()); error != 0) return error;
      channels_.emplace_back(channel, std::move(end));
      found = channels_.end() - 1;
    }
    const int error = found->second.write(&record, sizeof record);
    if (error != EBADF || tries != 0) return error;
    channels_.erase(found);  // the program has closed our descriptor; the pipe still has its name
  }
}

namespace {

// A call on the memory's file copies from the beginning of a page of the kernel. To the first bytes of
// another page, but not its very first, that copy goes byte by byte (engine/responder/placement.cc,
// seems_to_overlap()).
constexpr size_t kCopiedByBytes = 16;

bool is_copied_by_bytes(uint64_t there) { return there % kPage - 1 < kCopiedByBytes - 1; }

}  // namespace

// Copies up to `size` bytes. Returns the number, 0 if the process is gone, or minus errno.
long PeerAdapter::move_piece(bool writing, void* here, void* there, size_t size) {
  if (memory_fd_ < 0 && !is_own_) return -EPERM;
  // Own memory: the memory's file forces access to pages without it (mm/gup.c, FOLL_FORCE), a pipe does not.
  if (is_own_ && (memory_fd_ < 0 || !process_vm_.load(std::memory_order_relaxed))) {
    const int error = writing ? copy_by_pipe(there, here, size) : copy_by_pipe(here, there, size);
    return error == 0 ? static_cast<long>(size) : -error;
  }
  const auto at = static_cast<off_t>(reinterpret_cast<uintptr_t>(there));
  // The kernel copies through a page of its own, and counts pages from the start of the call (fs/proc/base.c,
  // mem_rw()). A call that begins within a page ends with that page, so that no aligned word is copied in two
  // parts.
  const auto into = static_cast<size_t>(at) % kPage;
  if (into != 0) size = std::min(size, (is_copied_by_bytes(into) ? kCopiedByBytes : kPage) - into);
  const long done = syscall(writing ? SYS_pwrite64 : SYS_pread64, memory_fd_, here, size, at);
  if (done >= 0) return done;
  return errno == EIO ? -EFAULT : -errno;
}

int PeerAdapter::piece_by_piece(bool writing, const iovec* local, size_t locals, const iovec* remote,
                                size_t remotes) {
  size_t l = 0, l_done = 0;
  for (size_t r = 0; r < remotes; ++r) {
    for (size_t r_done = 0; r_done < remote[r].iov_len;) {
      while (l < locals && l_done == local[l].iov_len) ++l, l_done = 0;
      if (l == locals) return EFAULT;
      const size_t n = std::min(remote[r].iov_len - r_done, local[l].iov_len - l_done);
      const long done = move_piece(writing, static_cast<char*>(local[l].iov_base) + l_done,
                                   static_cast<char*>(remote[r].iov_base) + r_done, n);
      if (done == -EINTR) continue;
      if (done < 0) return static_cast<int>(-done);
      if (done == 0) return ESRCH;  // the address space is gone (exec or death)
      r_done += static_cast<size_t>(done);
      l_done += static_cast<size_t>(done);
    }
  }
  return 0;
}

long PeerAdapter::process_vm(bool writing, const NodeDirectory& directory, const iovec* local, size_t locals,
                             const iovec* remote, size_t remotes) {
  const long call = writing ? SYS_process_vm_writev : SYS_process_vm_readv;
  // A pid is not an identity: it may name another program by now. So it is checked right before each call.
  if (!alive(directory)) return -ESRCH;
  const int32_t task = task_.load(std::memory_order_relaxed);
  long done = syscall(call, task, local, locals, remote, remotes, 0UL);
  if (done >= 0) [[likely]]
    return done;
  if (errno != ESRCH || task == pid_ || !alive(directory)) return -errno;
  // Linux takes any thread's number for its process (mm/process_vm_access.c). Another kernel may not.
  task_.store(pid_, std::memory_order_relaxed);
  done = syscall(call, pid_, local, locals, remote, remotes, 0UL);
  return done >= 0 ? done : -errno;
}

int PeerAdapter::transfer(bool writing, const NodeDirectory& directory, const iovec* local, size_t locals,
                          const iovec* remote, size_t remotes) {
  const KeepErrno guard;
  const size_t size = total(remote, remotes);
  if (size == 0) return 0;
  const bool by_bytes = writing && process_vm_.load(std::memory_order_relaxed) &&
                        is_copied_by_bytes(reinterpret_cast<uintptr_t>(remote[0].iov_base));
  if (size <= kWord && memory_fd_ >= 0 && !by_bytes)
    return piece_by_piece(writing, local, locals, remote, remotes);
  if (process_vm_.load(std::memory_order_relaxed)) {
    const long done = process_vm(writing, directory, local, locals, remote, remotes);
    // Checked again after the call: in between, the process may have exec'ed, and the bytes would be the new
    // program's.
    if (!alive(directory)) return ESRCH;
    if (done == static_cast<long>(size)) return 0;
    // Fewer bytes: a range further on is not mapped.
    if (done >= 0) return EFAULT;
    if (!is_refusal(static_cast<int>(-done))) return static_cast<int>(-done);
    process_vm_.store(false, std::memory_order_relaxed);
  }
  return piece_by_piece(writing, local, locals, remote, remotes);
}

bool PeerAdapter::write_word(uint64_t here, uint64_t there, size_t size) const {
  if (memory_fd_ < 0 || (process_vm_.load(std::memory_order_relaxed) && is_copied_by_bytes(there)))
    return false;
  const KeepErrno guard;
  return syscall(SYS_pwrite64, memory_fd_, here, size, there) == static_cast<long>(size);
}

bool PeerAdapter::read_word(uint64_t here, uint64_t there, size_t size) const {
  const KeepErrno guard;
  return memory_fd_ >= 0 && syscall(SYS_pread64, memory_fd_, here, size, there) == static_cast<long>(size);
}

int PeerAdapter::write(const NodeDirectory& directory, const iovec* local, size_t locals, const iovec* remote,
                       size_t remotes) {
  return transfer(true, directory, local, locals, remote, remotes);
}

int PeerAdapter::read(const NodeDirectory& directory, const iovec* local, size_t locals, const iovec* remote,
                      size_t remotes) {
  return transfer(false, directory, local, locals, remote, remotes);
}

struct PeerTable::Asked {
  Asked(uint32_t of_slot, uint32_t of_generation)
      : slot(of_slot), generation(of_generation), since(Clock::now()) {}
  uint32_t slot, generation;
  Clock::time_point since;
  SegmentRequest request;
};

std::shared_ptr<PeerAdapter> PeerTable::known(uint32_t slot, uint32_t generation) {
  std::erase_if(peers_, [](const auto& p) { return p.expired(); });
  for (const auto& each : peers_)
    if (auto peer = each.lock(); peer && peer->slot() == slot && peer->generation() == generation)
      return peer;
  return nullptr;
}

// A process that has been asked is not asked again.
int PeerTable::ask(const NodeMembership& membership, uint32_t slot, uint32_t generation,
                   std::shared_ptr<Asked>* out) {
  std::erase_if(
      asked_, [&](const auto& each) { return !membership.directory().alive(each->slot, each->generation); });
  const auto found = std::find_if(asked_.begin(), asked_.end(), [&](const auto& each) {
    return each->slot == slot && each->generation == generation;
  });
  if (found != asked_.end()) return *out = *found, 0;
  auto made = std::make_shared<Asked>(slot, generation);
  if (int error =
          made->request.begin(slot_address(membership.directory(), membership.node(), slot, generation));
      error != 0)
    return error;
  asked_.push_back(made);
  *out = std::move(made);
  return 0;
}

int PeerTable::take_answer(const NodeMembership& membership, const std::shared_ptr<Asked>& asked,
                           std::shared_ptr<PeerAdapter>* out) {
  PassedSegment given;
  if (int error = asked->request.take(&given); error != 0) {
    if (error != EAGAIN) std::erase(asked_, asked);
    return error;
  }
  std::erase(asked_, asked);
  auto peer = std::make_shared<PeerAdapter>(asked->slot, asked->generation);
  if (int error = peer->attach(membership, given); error != 0) {
    if (error == ENOMEM)
      VERBENA_ERROR(
          no_address_space,
          "no address space for the adapter of process %d: raise the limit (ulimit -v), there and here",
          given.pid);
    return error;
  }
  peers_.push_back(peer);
  *out = std::move(peer);
  return 0;
}

int64_t PeerTable::serve_regions(const NodeMembership& membership) {
  if (!has_regions_.load(std::memory_order_acquire)) return -1;
  std::vector<std::shared_ptr<PeerAdapter>> peers;
  {
    std::lock_guard lock(mutex_);
    for (const auto& each : peers_)
      if (auto peer = each.lock(); peer != nullptr) peers.push_back(std::move(peer));
  }
  int64_t next = -1;
  for (const auto& peer : peers) {
    const int64_t wanted = peer->regions().serve(membership, peer->view(), peer->slot(), peer->generation(),
                                                 peer->alive(membership.directory()));
    if (wanted >= 0) next = next < 0 ? wanted : std::min(next, wanted);
  }
  return next;
}

int PeerTable::get(NodeMembership& membership, uint32_t slot, uint32_t generation,
                   std::shared_ptr<PeerAdapter>* out, Patience patience) {
  const NoCancellation guard;  // the first message to a process comes here, too
  const Clock::time_point begin = Clock::now();
  std::unique_lock lock(mutex_);
  for (;;) {
    if (std::shared_ptr<PeerAdapter> peer = known(slot, generation); peer != nullptr)
      return *out = std::move(peer), 0;
    if (slot == membership.slot() && generation == membership.generation()) {
      auto self = std::make_shared<PeerAdapter>(slot, generation);
      self->attach_self(membership);
      peers_.push_back(self);
      return *out = std::move(self), 0;
    }
    std::shared_ptr<Asked> asked;
    int error = ask(membership, slot, generation, &asked);
    if (error == 0) error = take_answer(membership, asked, out);
    if (error != EAGAIN) return error;
    const auto until = std::max((asked ? asked->since : begin) + std::chrono::milliseconds(patience.first),
                                begin + std::chrono::milliseconds(patience.again));
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    if (left <= 0) return ETIMEDOUT;
    lock.unlock();
    if (asked)
      asked->request.wait(static_cast<int>(left));
    else
      poll(nullptr, 0, 1);  // the process has space for more requests when it has served some
    lock.lock();
  }
}

}  // namespace verbena
