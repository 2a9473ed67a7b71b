// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/node_membership.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/auxv.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "adapter/clock.h"
#include "fabric/node.h"
#include "fabric/node_build.h"
#include "fabric/node_file.h"
#include "fabric/node_holders.h"
#include "fabric/node_lock.h"
#include "fabric/node_removal.h"
#include "fabric/private_folder.h"
#include "fabric/process_identity.h"
#include "fabric/segment_passing.h"
#include "fabric/slot_folder.h"
#include "no_cancellation.h"
#include "observe/log.h"
#include "own_thread.h"

namespace verbena {
namespace {

constexpr int64_t kLookAtNames = 30'000'000'000;

// Orders what the thread has written before what the process reads once it has started. The atomic word does
// so as well, but ThreadSanitizer in a program does not see the atomics of this library, which is built
// without it; it sees mutexes.
std::mutex start_mutex;

void wipe_slot(const NodeDirectory& directory, const std::string& node, uint32_t index) {
  Slot& slot = directory.slot(index);
  directory.release_all_qpns(index);
  directory.clear_counts(index);
  MulticastTable(directory).release_all(index);
  FlowTable(directory).release_all(index);
  remove_slot_folder(node, slot_name(index, slot.generation.load(std::memory_order_relaxed)));
  for (uint32_t i = 0; i < kHazardsPerSlot; ++i)
    directory.hazard(index, i).target.store(0, std::memory_order_release);
  slot.hazards_used.store(0, std::memory_order_release);  // nobody has to look at them again
  slot.state.store(SlotState::kFree, std::memory_order_release);
}

// Locks the slot if it is free, and cleans up after a dead holder. 0 or EBUSY.
int lock_slot(const NodeDirectory& directory, const std::string& node, uint32_t index, RobustLock& lock) {
  const int error = lock.try_lock(directory.slot(index).life);
  if (error != EOWNERDEAD) return error;
  wipe_slot(directory, node, index);
  return 0;
}

void write_program_name(Slot& slot) {
  std::memset(slot.program, 0, sizeof slot.program);
  char name[17] = {};
  if (prctl(PR_GET_NAME, name) == 0) std::memcpy(slot.program, name, 16);
  const int fd = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);  // the process's, not this thread's
  if (fd < 0) return;
  const ssize_t got = read(fd, slot.program, sizeof slot.program - 1);
  if (got > 0 && slot.program[got - 1] == '\n') slot.program[got - 1] = 0;
  close(fd);
}

// EPERM: the process or the node is none that may be joined.
int check_trust(const std::string& node) {
  if (getauxval(AT_SECURE) != 0) {
    VERBENA_ERROR(node_not_used,
                  "%s is not used: the program has another user's rights (set-user-ID or capabilities)",
                  node.c_str());
    return EPERM;
  }
  std::string problem;
  const int error = check_private_folder(node, &problem);
  if (error == EPERM) VERBENA_ERROR(node_not_used, "the node is not used: %s", problem.c_str());
  return error == ENOENT ? 0 : error;  // its living processes may still have it (node_file.h)
}

}  // namespace

void reclaim_dead_slots(const NodeDirectory& directory, const std::string& node, RobustLock& lock) {
  for (uint32_t i = 0; i < kMaxSlots; ++i) {
    Slot& slot = directory.slot(i);
    if (slot.state.load(std::memory_order_acquire) == SlotState::kFree) continue;
    if (directory.alive(i, slot.generation.load(std::memory_order_acquire))) continue;
    if (lock_slot(directory, node, i, lock) == 0) lock.unlock();
  }
}

void NodeMembership::serve_requests_by(ServeRequest handler, void* context) {
  request_handler_ = {handler, context};
  services_.serve_by(
      ServiceNumber::kRequest,
      [](void* of, ServiceCall& call) { serve_request(*static_cast<const RequestHandler*>(of), call); },
      &request_handler_);
}

int NodeMembership::enter(const std::string& node, ServiceWork work, void* context) {
  node_ = node;
  work_ = work;
  context_ = context;
  if (int error = check_trust(node); error != 0) return error;
  if (int error = join(); error != 0) return error;
  int error = create_own_thread(&thread_, thread_main, this);
  if (error != 0) return error;
  started_.wait(-1, std::memory_order_acquire);
  std::lock_guard seen(start_mutex);
  error = started_.load(std::memory_order_acquire);
  if (error != 0) pthread_join(thread_, nullptr);
  return error;
}

// With the node's shared lock (node_lock.h), and not retired: nobody removes it until leave().
int NodeMembership::join() {
  if (int error = directory_.open(directory_path(node_).c_str()); error != 0) return error;
  if (int error = flock_within(directory_.file(), LOCK_SH, kLockPatience); error != 0) return error;
  if (directory_.header().retired.load(std::memory_order_acquire) != 0) {
    flock(directory_.file(), LOCK_UN);
    return ENOENT;
  }
  shelter_.keep(open(node_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (const int folder = shelter_.fd(); folder >= 0) flock(folder, LOCK_SH | LOCK_NB);
  return 0;
}

void NodeMembership::leave() {
  stop_.store(true, std::memory_order_release);
  kick();
  pthread_join(thread_, nullptr);
  kick_.close();  // not in the thread, which may be gone before the kick above is written
  shelter_.close();
  flock(directory_.file(), LOCK_UN);
  if (count_holders(directory_) == 0) remove_node(node_);  // a holder removes the node when it ends
}

void NodeMembership::retire_node_at_exit() {
  flock(directory_.file(), LOCK_UN);
  remove_node(node_, {.own = identity_of_process(getpid()), .own_slot = slot_});
}

int NodeMembership::make_fifo(FifoEnd& fifo, const std::string& name) const {
  const NoCancellation guard;
  const std::string own = slot_name(slot_, generation_);
  Descriptor folder;
  int error = open_slot_folder(node_, own, &folder);
  if (error == ENOENT) {
    if (const int made = make_slot_folder(node_, own); made != 0 && made != EEXIST) return made;
    error = open_slot_folder(node_, own, &folder);
  }
  return error != 0 ? error : fifo.make(folder.fd, name.c_str());
}

void NodeMembership::remove_fifo(const std::string& name) const {
  const NoCancellation guard;
  Descriptor folder;
  if (open_slot_folder(node_, slot_name(slot_, generation_), &folder) == 0)
    unlinkat(folder.fd, name.c_str(), 0);
}

void NodeMembership::kick() {
  const char byte = 0;
  if (kick_.write(&byte, 1) != EBADF) return;
  // The program has closed a descriptor that it does not own. The pipe still has its name.
  const NoCancellation guard;
  Descriptor folder;
  FifoEnd again;
  if (open_slot_folder(node_, slot_name(slot_, generation_), &folder) == 0 &&
      again.open(folder.fd, "kick") == 0)
    again.write(&byte, 1);
}

int NodeMembership::watch(int descriptor) {
  for (auto& place : watched_) {
    int nobody = -1;
    if (!place.compare_exchange_strong(nobody, descriptor, std::memory_order_acq_rel)) continue;
    kick();
    return 0;
  }
  return ENOSPC;
}

void NodeMembership::unwatch(int descriptor) {
  for (auto& place : watched_) {
    int expected = descriptor;
    if (place.compare_exchange_strong(expected, -1, std::memory_order_acq_rel)) return kick();
  }
}

void* NodeMembership::thread_main(void* self) {
  prctl(PR_SET_NAME, "verbena");
  static_cast<NodeMembership*>(self)->run();
  return nullptr;
}

void NodeMembership::run() {
  RobustLock lock;
  reclaim_dead_slots(directory_, node_, lock);
  int error = take_slot(lock);
  if (error == 0) {
    error = prepare();
    if (error != 0) give_back();
  }
  if (error == 0) directory_.slot(slot_).state.store(SlotState::kLive, std::memory_order_release);
  {
    std::lock_guard order(start_mutex);
    started_.store(error, std::memory_order_release);
  }
  started_.notify_all();
  if (error != 0) return;
  serve();
  give_back();
}

int NodeMembership::take_slot(RobustLock& lock) {
  const uint32_t first = directory_.header().next_slot.fetch_add(1, std::memory_order_relaxed);
  for (uint32_t i = 0; i < kMaxSlots; ++i) {
    const uint32_t index = (first + i) % kMaxSlots;
    Slot& slot = directory_.slot(index);
    if (lock_slot(directory_, node_, index, lock) != 0) continue;
    uint32_t generation = slot.generation.load(std::memory_order_relaxed) + 1;
    if (generation == 0) generation = 1;
    slot.pid.store(getpid(), std::memory_order_relaxed);
    slot.hazards_used.store(0, std::memory_order_relaxed);
    slot.explained.store(static_cast<uint32_t>(log_level), std::memory_order_relaxed);
    directory_.note_holder(index);
    slot.state.store(SlotState::kStarting, std::memory_order_release);
    slot.generation.store(generation, std::memory_order_release);
    write_program_name(slot);
    slot_ = index;
    generation_ = generation;
    folder_ = slot_folder(node_, slot_, generation_);
    return 0;
  }
  return EMFILE;
}

int NodeMembership::prepare() {
  if (int error = segment_.create(directory_.header().node_id, slot_, generation_); error != 0) return error;
  if (int error = make_slot_folder(node_, slot_name(slot_, generation_)); error != 0) return error;
  memory_fd_ = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
  const auto pass = [](void* self, ServiceCall& call) {
    const auto& membership = *static_cast<NodeMembership*>(self);
    pass_segment(call, membership.segment_.fd(), membership.memory_fd_);
  };
  services_.serve_by(ServiceNumber::kSegment, pass, this);
  if (int error = services_.open(slot_address(directory_, node_, slot_, generation_)); error != 0)
    return error;
  next_look_ = now_ns() + kLookAtNames;
  // Where Yama restricts process_vm_writev(2) to descendants, this process allows peers of its uid
  // (PR_SET_PTRACER(2const)).
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
  return make_fifo(kick_, "kick");
}

void NodeMembership::serve() {
  constexpr uint32_t kOwn = 2;
  pollfd watched[kOwn + kMaxWatched] = {{kick_.fd(), POLLIN, 0}, {services_.descriptor(), POLLIN, 0}};
  constexpr int64_t kPause = 10'000'000;
  int64_t wait_ns = kLookAtNames;
  while (!stop_.load(std::memory_order_acquire)) {
    const timespec timeout{wait_ns / 1'000'000'000, wait_ns % 1'000'000'000};
    for (uint32_t i = 0; i < kMaxWatched; ++i)
      watched[kOwn + i] = {watched_[i].load(std::memory_order_acquire), POLLIN, 0};
    const int ready = ppoll(watched, kOwn + kMaxWatched, &timeout, nullptr);
    if (ready < 0 && errno != EINTR) {
      // EINVAL: more descriptors than the program's RLIMIT_NOFILE allows (poll(2)). They are looked at after
      // a pause.
      constexpr timespec pause{0, kPause};
      nanosleep(&pause, nullptr);
      watched[0].revents = watched[1].revents = POLLIN;
    }
    bool crowded = false;
    if (watched[1].revents & (POLLIN | POLLNVAL)) crowded = !services_.serve();
    watched[1].fd = services_.descriptor();
    char drained[256];
    if (watched[0].revents & POLLIN) syscall(SYS_read, kick_.fd(), drained, sizeof drained);
    // The program has closed descriptors that it does not own: stop watching a descriptor that is no longer
    // ours.
    if (watched[0].revents & POLLNVAL) watched[0].fd = -1;
    for (uint32_t i = 0; i < kMaxWatched; ++i)  // closed by the program: it would not let us sleep
      if (int gone = watched[kOwn + i].fd; watched[kOwn + i].revents & POLLNVAL)
        watched_[i].compare_exchange_strong(gone, -1, std::memory_order_acq_rel);
    wait_ns = work_ != nullptr ? work_(context_) : -1;
    const int64_t now = now_ns();
    if (now >= next_look_) {
      mend_names();
      next_look_ = now + kLookAtNames;
    }
    wait_ns = wait_ns < 0 ? next_look_ - now : std::min(wait_ns, next_look_ - now);
    if (crowded) {
      watched[1].fd = -1;  // for a while: it would not let us sleep
      wait_ns = std::min(wait_ns, kPause);
    }
  }
}

// What a cleaner of old files has deleted: a process of another network namespace needs it.
void NodeMembership::mend_names() {
  struct stat status;
  if (lstat((folder_ + "/" + ServiceSocket::kName).c_str(), &status) == 0 || errno != ENOENT) return;
  const int file = directory_.file();
  if (lstat(directory_path(node_).c_str(), &status) == 0 && !has_name(file, directory_path(node_))) return;
  const std::string parent = node_.substr(0, node_.rfind('/'));
  std::string problem;
  if (ensure_private_folder(parent, &problem) != 0) return;
  const FolderLock lock(parent, std::chrono::milliseconds(0));
  if (lock.error() != 0 || mend_node(node_, directory_, {}, &problem) != 0) return;
  const int error = make_slot_folder(node_, slot_name(slot_, generation_));
  if (error == 0 || error == EEXIST) services_.open_again(folder_);
}

void NodeMembership::give_back() {
  services_.close();
  if (memory_fd_ >= 0) close(memory_fd_);
  memory_fd_ = -1;
  wipe_slot(directory_, node_, slot_);
}

}  // namespace verbena
