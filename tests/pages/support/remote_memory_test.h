// SPDX-License-Identifier: BSD-2-Clause
//
// A connected pair whose passive side offers memory to read (`readable_`) and to write (`writable_`).
#pragma once

#include "connected_test.h"

namespace verbena::pages {

class RemoteMemoryTest : public ConnectedTest {
 protected:
  void SetUp() override {
    ConnectedTest::SetUp();
    if (!HasFatalFailure()) offer();
  }
  void TearDown() override {
    withdraw();
    ConnectedTest::TearDown();
  }

  void reconnect(const Connection& wanted) {
    withdraw();
    connect_pair(wanted);
    offer();
  }
  void withdraw() {
    readable_ = {};
    writable_ = {};
  }

  Memory readable_, writable_;

 private:
  void offer() {
    readable_ = Memory(passive_.get(), kSize, rdma_reg_read);
    writable_ = Memory(passive_.get(), kSize, rdma_reg_write);
    readable_.fill(11);
    active_memory_.fill(1);
  }
};

}  // namespace verbena::pages
