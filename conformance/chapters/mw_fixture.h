// SPDX-License-Identifier: BSD-2-Clause
//
// Fixture for tests of memory windows.
#pragma once

#include <infiniband/verbs.h>

#include "support/pair.h"

namespace conformance {

inline constexpr int read_write = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;

inline PairSpec bindable() {
  PairSpec spec;
  spec.both.access = all_remote_access | IBV_ACCESS_MW_BIND;
  return spec;
}

// The near end binds windows on its buffer, by its objects; the far end uses their keys.
class WindowTest : public PairTest {
 protected:
  End& binder() {
    pair(bindable());
    return pair().native().end;
  }
  Endpoint& user() { return pair(bindable()).far; }
  Mw window(ibv_mw_type type = IBV_MW_TYPE_1) { return make_mw(binder().pd, type); }

  ibv_mw_bind binding(size_t offset, size_t length, int access = read_write, ibv_mr* mr = nullptr) {
    ibv_mw_bind bind = {};
    bind.wr_id = 9;
    bind.send_flags = IBV_SEND_SIGNALED;
    bind.bind_info = {mr != nullptr ? mr : binder().mr.get(), binder().buffer.address(offset), length,
                      static_cast<unsigned>(access)};
    return bind;
  }
  // Posts the bind and waits for it; returns the status, IBV_WC_MW_BIND_ERR if it is refused at once.
  ibv_wc_status bind(ibv_mw* mw, ibv_mw_bind how) {
    if (CALL(ibv_bind_mw(binder().qp, mw, &how)) != 0) return IBV_WC_MW_BIND_ERR;
    return completion(binder().cq).status;
  }
  ibv_wc_status bind(ibv_mw* mw, size_t offset, size_t length, int access = read_write) {
    return bind(mw, binding(offset, length, access));
  }
  // Type 2: with IBV_WR_BIND_MW.
  ibv_wc_status bind_by_request(ibv_mw* mw, uint32_t rkey, size_t offset, size_t length,
                                int access = read_write) {
    ibv_send_wr wr = binder().request(IBV_WR_BIND_MW, nullptr);
    wr.bind_mw = {mw, rkey, binding(offset, length, access).bind_info};
    if (binder().post(wr) != 0) return IBV_WC_MW_BIND_ERR;
    return completion(binder().cq).status;
  }
  ibv_wc_status access(ibv_wr_opcode opcode, uint64_t address, uint32_t rkey, uint32_t length = 1) {
    SendRequest request = send_request({{0, length}}, 1, opcode);
    request.remote = address;
    request.rkey = rkey;
    EXPECT_EQ(user().post(request), 0);
    return user().completion().status;
  }
  ibv_wc_status write(size_t offset, uint32_t rkey, uint32_t length = 1) {
    return access(IBV_WR_RDMA_WRITE, binder().buffer.address(offset), rkey, length);
  }
};

}  // namespace conformance
