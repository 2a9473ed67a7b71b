// SPDX-License-Identifier: BSD-2-Clause
#include "engine/xrc/xrc_openings.h"

#include <errno.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <type_traits>

#include "engine/clock.h"
#include "engine/queue_pair/error_flow.h"
#include "engine/queue_pair/modify_qp.h"
#include "engine/queue_pair/queue_pair.h"
#include "engine/xrc/shared_path.h"
#include "engine/xrc/xrc.h"
#include "fabric/ask.h"
#include "fabric/hazards.h"
#include "fabric/kick.h"
#include "fabric/node.h"
#include "fabric/xrc_domains.h"
#include "observe/log.h"

namespace verbena {
namespace {

// Nobody is told when a process dies: who holds another's queue pair, or has an orphan that others hold,
// looks so often.
constexpr int64_t kLook = 200'000'000;
constexpr int64_t kSoon = 10'000'000;

// How long a verb waits for a queue pair that is between two makers, and for the maker to answer.
constexpr int64_t kBetween = 5'000'000'000;
constexpr int kAnswerMs = 5000;

// Somebody in the maker's process has opened it again.
bool has_handle(Qp& qp) {
  std::lock_guard lock(qp.openings_mutex);
  return !qp.openings.empty();
}

}  // namespace

int open_foreign_qp(Context* context, Xrcd* xrcd, uint32_t qpn, uint64_t user_handle, Qp** out) {
  Process& process = *context->process;
  const NodeDirectory& directory = process.directory();
  const Residence& home = process.home();
  QpnEntry found;
  if (!directory.find_qpn(qpn, &found)) return EINVAL;
  const uint32_t generation = directory.slot(found.slot).generation.load(std::memory_order_acquire);
  try {
    auto qp = std::make_unique<Qp>();
    qp->foreign = std::make_shared<ForeignQp>();
    ForeignQp& foreign = *qp->foreign;
    if (int error = process.peers().get(process.home(), found.slot, generation, &foreign.maker); error != 0) {
      VERBENA_WARN("ibv_open_qp: cannot reach the adapter of QP 0x%06x (slot %u): errno %d", qpn, found.slot,
                   error);
      return error == ENOMEM || error == ETIMEDOUT ? error : EINVAL;  // else it is gone
    }
    foreign.index = found.qp_index;
    foreign.there = foreign.maker->view().qp(found.qp_index);
    const SharedQp* there = foreign.there;
    if (there == nullptr || there->in_use.load(std::memory_order_acquire) == 0 || there->qpn != qpn ||
        there->type != IBV_QPT_XRC_RECV || there->xrcd != xrcd->number) {
      VERBENA_WARN("ibv_open_qp: QP 0x%06x is no XRC_RECV queue pair of this domain", qpn);
      return EINVAL;
    }
    foreign.birth = there->birth;
    foreign.events_seen = ToldEvents::count_of(there->events_told.load(std::memory_order_acquire));
    foreign.stand_in.qpn = qpn;
    foreign.stand_in.type = IBV_QPT_XRC_RECV;
    qp->context = context;
    qp->process = &process;
    qp->index = found.qp_index;
    qp->shared = &foreign.stand_in;
    qp->user_handle = user_handle;
    qp->type = IBV_QPT_XRC_RECV;
    qp->xrcd = xrcd;
    qp->openings.push_back({context, xrcd, user_handle, 0});
    if (int error =
            open_xrc_qp(directory, home.node(), home.slot(), home.generation(), found, &foreign.entry);
        error != 0)
      return error;
    xrcd->users.fetch_add(1, std::memory_order_relaxed);
    if (int error = process.hold_foreign(qp.get()); error != 0) {
      close_xrc_domain(directory, foreign.entry);
      xrcd->users.fetch_sub(1, std::memory_order_release);
      return error;
    }
    *out = qp.release();
    return 0;
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
}

namespace {

// Where the queue pair is now; waits while it is between two makers. False: it has ended.
bool find_maker(Qp& qp, int64_t until, ForeignPlace* out) {
  for (;;) {
    const Standing standing = qp.process->foreign_now(qp, out);
    if (standing != Standing::kLater) return standing == Standing::kThere;
    if (now_ns() >= until) return false;
    constexpr timespec kPause{0, 1'000'000};
    nanosleep(&kPause, nullptr);
  }
}

// What one process asks of another that is the maker.
struct Question {
  static constexpr uint32_t kModify = 0x4d'43'52'58;  // "XRCM"
  uint32_t what;
  uint32_t qpn;
  uint32_t index;
  uint32_t birth;
  int32_t mask;
  PeerQp peer;
  ibv_qp_attr attr;
};
struct Answer {
  int32_t error;  // ESTALE: it is not here any more
};
static_assert(sizeof(Question) <= kMaxMessage && std::is_trivially_copyable_v<Question>);

}  // namespace

int modify_foreign_qp(Qp& qp, const ibv_qp_attr& attr, int mask) {
  Process& process = *qp.process;
  Question question{Question::kModify, qp.shared->qpn, 0, 0, mask, {}, attr};
  if ((mask & IBV_QP_STATE) != 0 && attr.qp_state == IBV_QPS_RTR) question.peer = find_peer(qp, attr);
  const int64_t until = now_ns() + int64_t{kAnswerMs} * 1'000'000;
  for (ForeignPlace now; find_maker(qp, until, &now);) {
    question.index = now.index;
    question.birth = now.birth;
    std::byte bytes[kMaxMessage];
    size_t size = 0;
    int error = 0;
    if (now.maker->slot() == process.home().slot())
      size = process.answer_about_openings(reinterpret_cast<const std::byte*>(&question), sizeof question, bytes);
    else
      error = ask(slot_folder(process.home().node(), now.maker->slot(), now.maker->generation()), &question,
                  sizeof question, bytes, &size, kAnswerMs);
    Answer answer{ESTALE};
    if (error == 0 && size == sizeof answer) std::memcpy(&answer, bytes, sizeof answer);
    const bool gone = error == ECONNREFUSED || error == ENOENT || error == ECONNRESET;
    if (error != 0 && !gone) {
      VERBENA_WARN("ibv_modify_qp: QP 0x%06x: the process that made it (slot %u) does not answer: errno %d",
                   qp.shared->qpn, now.maker->slot(), error);
      return error;
    }
    if (error == 0 && answer.error != EAGAIN && answer.error != ESTALE) return answer.error;
    if (now_ns() >= until) return ETIMEDOUT;
    constexpr timespec kPause{0, 1'000'000};
    nanosleep(&kPause, nullptr);
  }
  return EIO;
}

size_t Process::answer_about_openings(const std::byte* bytes, size_t size, std::byte* out) {
  Question question;
  if (size != sizeof question) return 0;
  std::memcpy(&question, bytes, size);
  if (question.what != Question::kModify) return 0;
  if (question.peer.slot >= kMaxSlots && question.peer.slot != UINT32_MAX) return 0;
  Answer answer{ESTALE};
  {
    std::lock_guard lock(attend_mutex_);
    Qp* qp = question.index < kMaxQpsPerProcess ? this->qp(question.index) : nullptr;
    if (qp != nullptr && !is_going(question.index) && qp->type == IBV_QPT_XRC_RECV &&
        qp->shared->qpn == question.qpn && qp->shared->birth == question.birth)
      answer.error = modify_for_another(*qp, question.attr, question.mask, question.peer);
  }
  std::memcpy(out, &answer, sizeof answer);
  return sizeof answer;
}

int query_foreign_qp(Qp& qp, ibv_qp_attr* attr, ibv_qp_init_attr* init) {
  Process& process = *qp.process;
  *attr = {};
  init->cap = {};
  init->qp_type = qp.type;
  attr->qp_state = attr->cur_qp_state = IBV_QPS_ERR;
  ForeignPlace foreign;
  if (!find_maker(qp, now_ns() + kBetween, &foreign)) return 0;
  const Visit visit(process.directory(), process.home().slot(), foreign.maker->slot());
  const SharedQp& there = *foreign.there;
  const Gate gate = Gate::unpack(there.gate.load(std::memory_order_acquire));
  attr->qp_state = attr->cur_qp_state = static_cast<ibv_qp_state>(gate.state);
  if (gate.state == IBV_QPS_RESET) return 0;
  read_path(there, attr);
  attr->qp_access_flags = there.access;
  if (gate.state == IBV_QPS_INIT) return 0;  // what is left there is of the life before
  attr->path_mtu = static_cast<ibv_mtu>(there.path_mtu);
  attr->dest_qp_num = there.dest_qpn;
  attr->min_rnr_timer = there.min_rnr_timer;
  attr->max_dest_rd_atomic = there.max_dest_rd_atomic;
  attr->rq_psn = there.rq_psn;
  if (there.feeding_generation.load(std::memory_order_acquire) == gate.generation)
    attr->rq_psn = there.expected_psn.load(std::memory_order_relaxed);
  return 0;
}

uint32_t close_foreign_qp(Qp* qp, uint64_t user_handle) {
  Process& process = *qp->process;
  process.let_foreign_go(qp);  // from here on nobody else changes what it stands for
  close_xrc_domain(process.directory(), qp->foreign->entry);
  if (qp->foreign->maker->alive(process.directory())) qp->foreign->maker->kick();
  const QpOpening& opening = qp->openings.front();
  const uint32_t read = take_back_events(*opening.context, user_handle, opening.async_events);
  opening.xrcd->users.fetch_sub(1, std::memory_order_release);
  delete qp;
  return read;
}

void tell_holders(Qp& qp, ibv_event_type type) {
  std::atomic<uint64_t>& told = qp.shared->events_told;
  told.store(ToldEvents::with(told.load(std::memory_order_relaxed), static_cast<uint8_t>(type)),
             std::memory_order_release);
  const Process& process = *qp.process;
  for_each_holder(process.directory(), qp.shared->qpn, [&](uint32_t slot, uint32_t generation) {
    kick_slot(process.directory(), qp.process->home().node(), slot, generation);
  });
}

// ---- the process's part ----

int Process::hold_foreign(Qp* qp) {
  {
    std::lock_guard lock(openings_mutex_);
    try {
      foreign_.push_back(qp);
    } catch (const std::bad_alloc&) {
      return ENOMEM;
    }
  }
  home_.kick();  // from now on the service thread looks
  return 0;
}

void Process::let_foreign_go(Qp* qp) {
  std::lock_guard lock(openings_mutex_);
  std::erase(foreign_, qp);
}

int Process::keep_orphan(Qp* qp) {
  {
    std::lock_guard lock(openings_mutex_);
    try {
      orphans_.push_back({qp, false});
    } catch (const std::bad_alloc&) {
      return ENOMEM;
    }
  }
  home_.kick();
  return 0;
}

bool Process::adopt_orphan(Qp* qp) {
  std::lock_guard lock(openings_mutex_);
  const auto found =
      std::find_if(orphans_.begin(), orphans_.end(), [&](const Orphan& orphan) { return orphan.qp == qp; });
  if (found == orphans_.end()) return true;
  if (found->ending) return false;
  orphans_.erase(found);
  return true;
}

Standing Process::foreign_now(Qp& qp, ForeignPlace* out) {
  std::lock_guard lock(openings_mutex_);
  const Standing standing = attend_foreign(qp);
  *out = *qp.foreign;
  return standing;
}

// What its maker has left word of, or that it is gone, and who comes after it.
Standing Process::attend_foreign(Qp& qp) {
  ForeignQp& foreign = *qp.foreign;
  if (foreign.lost) return Standing::kLost;
  if (foreign.there->birth == foreign.birth) raise_told_events(qp);
  const Standing standing = find_again(qp);
  if (standing == Standing::kLost) {
    foreign.lost = true;
    VERBENA_WARN("QP 0x%06x has ended with the process that made it", qp.shared->qpn);
    raise_qp_event(qp, IBV_EVENT_QP_FATAL);
  }
  return standing;
}

void Process::raise_told_events(Qp& qp) {
  ForeignQp& foreign = *qp.foreign;
  const uint64_t word = foreign.there->events_told.load(std::memory_order_acquire);
  const uint64_t missed = (ToldEvents::count_of(word) - foreign.events_seen) & 0xffff;
  foreign.events_seen = ToldEvents::count_of(word);
  for (int ago = static_cast<int>(std::min<uint64_t>(missed, ToldEvents::kKept)) - 1; ago >= 0; --ago)
    raise_qp_event(qp, static_cast<ibv_event_type>(ToldEvents::type(word, ago)));
}

// True: it has ended. Nothing here waits: whoever is at work in the queue pair, or holds the table's lock,
// may be stopped.
bool Process::end_orphan(Orphan& orphan) {
  Qp& qp = *orphan.qp;
  if (!orphan.ending) {
    if (!end_xrc_qp(directory(), home_.node(), home_.slot(), qp.shared->qpn, false)) return false;
    qp.send_lock.lock();
    shut_gate(qp, IBV_QPS_RESET);
    qp.send_lock.unlock();
    forget_qp(qp.index);
    orphan.ending = true;
  }
  if (!visitors_gone(directory(), home_.slot(), qp.shared->dest_slot, kVisitPatience)) return false;
  qp_is_gone(qp.index);
  qp.shared->in_use.store(0, std::memory_order_release);
  free_qp(&qp);
  return true;
}

int64_t Process::attend_openings() {
  std::lock_guard lock(openings_mutex_);
  bool between = false;
  for (Qp* qp : foreign_) between |= attend_foreign(*qp) == Standing::kLater;
  std::erase_if(orphans_, [this](Orphan& orphan) { return has_handle(*orphan.qp) || end_orphan(orphan); });
  if (foreign_.empty() && orphans_.empty()) return kEndOfTime;
  const bool ending =
      std::any_of(orphans_.begin(), orphans_.end(), [](const Orphan& orphan) { return orphan.ending; });
  return now_ns() + (ending || between ? kSoon : kLook);
}

}  // namespace verbena
