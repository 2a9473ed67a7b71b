// SPDX-License-Identifier: BSD-2-Clause
//
// Fixtures for tests of posting in one state or another.
#pragma once

#include "support/fixture.h"
#include "support/objects.h"
#include "support/transitions.h"

namespace conformance {

// A QP connected to itself, with a buffer that both kinds of request may name.
class PostInState : public DeviceTest {
 protected:
  Qp& qp_in(ibv_qp_state state) {
    if (!pd_) pd_ = make_pd(device());
    cq_ = make_cq(device());
    mr_ = make_mr(pd_, buffer_);
    qp_ = make_qp(pd_, cq_);
    bring_to(qp_, state, values());
    return qp_;
  }
  ibv_qp_attr values() { return attributes_for(device(), {.destination = qp_->qp_num}); }

  const Buffer buffer_{64};
  Pd pd_;
  Cq cq_;
  Mr mr_;
  Qp qp_;
};

}  // namespace conformance
