// SPDX-License-Identifier: BSD-2-Clause
#include "engine/xrc/xrc_openings.h"
#include "engine/xrc/xrc_request.h"
#include "engine/xrc/xrc_shared_qps.h"

#include <errno.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <type_traits>

#include "emulator.h"
#include "engine/objects/xrcd.h"
#include "engine/qp_state/error_flow.h"
#include "engine/queue_pair/modify_qp.h"
#include "engine/queue_pair/queue_pair.h"
#include "engine/queue_pair/shared_path.h"
#include "engine/rules/clock.h"
#include "fabric/ask.h"
#include "fabric/hazards.h"
#include "fabric/kick.h"
#include "fabric/node.h"
#include "fabric/xrc_domains.h"
#include "observe/log.h"

namespace verbena {
namespace {

// How long a verb waits for a queue pair that is between two makers, and for the maker to answer.
constexpr int64_t kBetween = 5'000'000'000;
constexpr int kAnswerMs = 5000;

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
    qp->proxy = std::make_unique<ForeignQp>();
    ForeignQp& foreign = foreign_of(*qp);
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
    if (int error = process.xrc_shared_qps().hold(qp.get()); error != 0) {
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
    const Standing standing = qp.process->xrc_shared_qps().find(qp, out);
    if (standing != Standing::kLater) return standing == Standing::kThere;
    if (now_ns() >= until) return false;
    constexpr timespec kPause{0, 1'000'000};
    nanosleep(&kPause, nullptr);
  }
}

}  // namespace

int ForeignQp::modify(Qp& qp, const ibv_qp_attr& attr, int mask) {
  Process& process = *qp.process;
  XrcModifyRequest question{XrcModifyRequest::kModify, qp.shared->qpn, 0, 0, mask, {}, attr};
  if ((mask & IBV_QP_STATE) != 0 && attr.qp_state == IBV_QPS_RTR) question.peer = find_peer(qp, attr);
  const int64_t until = now_ns() + int64_t{kAnswerMs} * 1'000'000;
  for (ForeignPlace now; find_maker(qp, until, &now);) {
    question.index = now.index;
    question.birth = now.birth;
    std::byte bytes[kMaxMessage];
    size_t size = 0;
    int error = 0;
    if (now.maker->slot() == process.home().slot())
      size = process.xrc_shared_qps().reply(reinterpret_cast<const std::byte*>(&question), sizeof question, bytes);
    else
      error = ask(slot_folder(process.home().node(), now.maker->slot(), now.maker->generation()), &question,
                  sizeof question, bytes, &size, kAnswerMs);
    XrcModifyReply answer{ESTALE};
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

int ForeignQp::query(Qp& qp, ibv_qp_attr* attr, ibv_qp_init_attr* init) {
  Process& process = *qp.process;
  *attr = {};
  init->cap = {};
  init->qp_type = qp.type;
  attr->qp_state = attr->cur_qp_state = IBV_QPS_ERR;
  ForeignPlace foreign;
  if (!find_maker(qp, now_ns() + kBetween, &foreign)) return 0;
  const Visit visit(process.directory(), process.home().slot(), foreign.maker->slot());
  const SharedQp& shared = *foreign.there;
  const Gate gate = Gate::unpack(shared.gate.load(std::memory_order_acquire));
  attr->qp_state = attr->cur_qp_state = static_cast<ibv_qp_state>(gate.state);
  if (gate.state == IBV_QPS_RESET) return 0;
  read_path(shared, attr);
  attr->qp_access_flags = shared.access;
  if (gate.state == IBV_QPS_INIT) return 0;  // what is left shared is of the life before
  attr->path_mtu = static_cast<ibv_mtu>(shared.path_mtu);
  attr->dest_qp_num = shared.dest_qpn;
  attr->min_rnr_timer = shared.min_rnr_timer;
  attr->max_dest_rd_atomic = shared.max_dest_rd_atomic;
  attr->rq_psn = shared.rq_psn;
  if (shared.feeding_generation.load(std::memory_order_acquire) == gate.generation)
    attr->rq_psn = shared.expected_psn.load(std::memory_order_relaxed);
  return 0;
}

uint32_t close_foreign_qp(Qp* qp, uint64_t user_handle) {
  Process& process = *qp->process;
  process.xrc_shared_qps().let_go(qp);  // from here on nobody else changes what it stands for
  close_xrc_domain(process.directory(), foreign_of(*qp).entry);
  if (foreign_of(*qp).maker->alive(process.directory())) foreign_of(*qp).maker->kick();
  const QpOpening& opening = qp->openings.front();
  const uint32_t read = take_back_events(*opening.context, user_handle, opening.async_events);
  opening.xrcd->users.fetch_sub(1, std::memory_order_release);
  delete qp;
  return read;
}

}  // namespace verbena
