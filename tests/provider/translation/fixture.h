// SPDX-License-Identifier: BSD-2-Clause
//
// The provider on the fake emulator, seen through the machine's own libibverbs. The device is built by the
// fixture, so that neither sysfs nor the preload is needed.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "fake_emulator.h"
#include "verbs/objects.h"
#include "verbs/ops.h"

namespace verbena::test {

inline bool is_open(int fd) { return fcntl(fd, F_GETFD) != -1; }

class TranslationTest : public testing::Test {
 protected:
  void SetUp() override {
    fake = FakeEmulator{};
    device_.refcount = 1;
    strcpy(device_.device.name, "verbena7");
    cmd_fd_ = open("/dev/null", O_RDWR | O_CLOEXEC);
    ASSERT_GE(cmd_fd_, 0);
  }

  pabi_device device_ = {};
  int cmd_fd_ = -1;
};

class ContextTest : public TranslationTest {
 protected:
  void SetUp() override {
    TranslationTest::SetUp();
    verbs_context* context = verbs::alloc_context(&device_.device, cmd_fd_, nullptr);
    ASSERT_NE(context, nullptr);
    context_ = &context->context;
  }
  void TearDown() override {
    if (context_ != nullptr) {
      ibv_close_device(context_);
      EXPECT_EQ(fake.contexts, 0);
      EXPECT_EQ(device_.refcount, 1);
    }
  }

  ibv_context* context_ = nullptr;
};

class ObjectTest : public ContextTest {
 protected:
  void SetUp() override {
    ContextTest::SetUp();
    pd_ = ibv_alloc_pd(context_);
    cq_ = ibv_create_cq(context_, 10, nullptr, nullptr, 0);
    ASSERT_NE(pd_, nullptr);
    ASSERT_NE(cq_, nullptr);
  }
  void TearDown() override {
    fake.error = 0;
    if (qp_ != nullptr) {
      EXPECT_EQ(ibv_destroy_qp(qp_), 0);
    }
    if (cq_ != nullptr) {
      EXPECT_EQ(ibv_destroy_cq(cq_), 0);
    }
    if (pd_ != nullptr) {
      EXPECT_EQ(ibv_dealloc_pd(pd_), 0);
    }
    EXPECT_EQ(fake.objects, 0);
    ContextTest::TearDown();
  }

  ibv_qp_init_attr qp_init() {
    ibv_qp_init_attr init = {};
    init.qp_context = &fake;
    init.send_cq = cq_;
    init.recv_cq = cq_;
    init.cap = {
        .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
    init.qp_type = IBV_QPT_RC;
    return init;
  }
  void make_qp() {
    ibv_qp_init_attr init = qp_init();
    qp_ = ibv_create_qp(pd_, &init);
    ASSERT_NE(qp_, nullptr);
  }

  ibv_pd* pd_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_qp* qp_ = nullptr;
};

}  // namespace verbena::test
