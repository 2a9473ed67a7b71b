// SPDX-License-Identifier: BSD-2-Clause
#include "engine/post/rendezvous.h"

#include <endian.h>
#include <infiniband/tm_types.h>

#include <cstring>
#include <mutex>

#include "engine/completion/tag_operations.h"
#include "engine/objects/cq.h"
#include "engine/objects/own_requests.h"
#include "engine/objects/process.h"
#include "engine/objects/qp.h"
#include "engine/objects/send_request.h"
#include "engine/objects/transport.h"
#include "engine/post/queued_send.h"

namespace verbena {
namespace {

struct BothHeaders {
  ibv_tmh tmh;
  ibv_rvh rvh;
};
static_assert(sizeof(BothHeaders) == kRendezvousInline);

struct Job {
  uint32_t index;
  TagMatching::Entry entry;
  BothHeaders headers;
};

// The next message to be fetched. False: there is none.
bool take_job(Srq& srq, Job* job) {
  TagMatching& tags = *srq.tags;
  std::lock_guard lock(srq.lock);
  while (!tags.rendezvous.empty()) {
    job->index = tags.rendezvous.front();
    tags.rendezvous.erase(tags.rendezvous.begin());
    TagMatching::Entry& entry = tags.entries[job->index];
    if (entry.number == 0 || entry.qp_index == UINT32_MAX) continue;
    // Copied, then judged: the requester can still write there.
    std::memcpy(&job->headers, tags.list.tags[job->index].header, sizeof job->headers);
    entry.length = be32toh(job->headers.rvh.len);
    job->entry = entry;
    return true;
  }
  return false;
}

// The queue pair has no room now: the job comes first the next time.
void put_back(Srq& srq, const Job& job) {
  std::lock_guard lock(srq.lock);
  TagMatching& tags = *srq.tags;
  if (tags.rendezvous.size() < tags.entries.size())
    tags.rendezvous.insert(tags.rendezvous.begin(), job.index);
  srq.cq->rendezvous_due.store(true, std::memory_order_relaxed);
}

void post_own(Qp& qp, SendRequest& request) {
  request.number = qp.sq_posted;
  qp.transport->expect_request(qp, request.number);
  qp.own_requests->note(request.number);
  ++qp.sq_posted;
  qp.shared->sq_posted.store(qp.sq_posted, std::memory_order_relaxed);
  keep_request(qp, request);
}

void post_read(Qp& qp, const Job& job) {
  ibv_sge sge = job.entry.sge;
  sge.length = job.entry.length;
  SendRequest read{};
  read.opcode = IBV_WR_RDMA_READ;
  read.sges = &sge;
  read.sge_count = 1;
  read.length = job.entry.length;
  read.remote_address = be64toh(job.headers.rvh.va);
  read.rkey = be32toh(job.headers.rvh.rkey);
  read.tag = job.index + 1;
  post_own(qp, read);
}

// After the READ: the peer may then free its buffer.
void post_end(Qp& qp, const Job& job) {
  BothHeaders headers = job.headers;
  headers.tmh.opcode = IBV_TMH_FIN;
  const ibv_sge sge{reinterpret_cast<uint64_t>(&headers), sizeof headers, 0};
  SendRequest end{};
  end.opcode = IBV_WR_SEND;
  end.flags = IBV_SEND_FENCE | IBV_SEND_INLINE;
  end.sges = &sge;
  end.sge_count = 1;
  end.length = sizeof headers;
  end.is_inline = true;
  end.tag = job.index + 1;
  post_own(qp, end);
}

enum class Started : uint8_t { kYes, kNoRoom, kNever };

Started start_job(Qp& qp, const Job& job) {
  std::lock_guard lock(qp.send_lock);
  const ibv_qp_state state = qp.state.load(std::memory_order_relaxed);
  const bool fits = job.entry.length <= job.entry.sge.length;
  if ((state != IBV_QPS_RTS && state != IBV_QPS_SQD) || !fits ||
      (job.entry.length != 0 && qp.attr.max_rd_atomic == 0)) {
    end_rendezvous(*qp.srq, qp, job.index, UINT64_MAX, true);
    return Started::kNever;
  }
  const uint32_t wanted = job.entry.length != 0 ? 2 : 1;
  if (!qp.own_requests->has_room(qp.sq_freed.load(std::memory_order_acquire), wanted))
    return Started::kNoRoom;
  if (job.entry.length != 0) post_read(qp, job);
  post_end(qp, job);
  qp.process->scheduler().add(&qp);
  return Started::kYes;
}

class ThroughSendQueue final : public Rendezvous {
 public:
  void start(Srq& srq) override {
    Process& process = *srq.process;
    for (Job job; take_job(srq, &job);) {
      Qp* const qp = process.qp(job.entry.qp_index);
      if (qp == nullptr || process.is_going(job.entry.qp_index) || qp->srq != &srq ||
          qp->shared->incarnation != job.entry.qp_incarnation)
        continue;
      if (start_job(*qp, job) != Started::kNoRoom) continue;
      put_back(srq, job);
      return;
    }
  }
};

}  // namespace

Rendezvous& rendezvous() {
  static constinit ThroughSendQueue through_send_queue;
  return through_send_queue;
}

}  // namespace verbena
