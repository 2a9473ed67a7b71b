// SPDX-License-Identifier: BSD-2-Clause
//
// ibv_import_device(3) and the objects of one context seen from another.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pair.h"

namespace verbena::test {
namespace {

class ImportTest : public PairTest {
 protected:
  void SetUp() override {
    PairTest::SetUp();
    if (HasFatalFailure()) return;
    imported_.reset(ibv_import_device(dup(context_->cmd_fd)));
    ASSERT_NE(imported_, nullptr) << strerror(errno);
  }
  void TearDown() override {
    requester_.reset();
    responder_.reset();
    imported_.reset();
    PairTest::TearDown();
  }
  Context imported_;
};

TEST_F(ImportTest, IsTheSameDevice) { EXPECT_EQ(imported_->device, context_->device); }

TEST_F(ImportTest, HasAnAsyncDescriptorOfItsOwn) {
  EXPECT_GE(imported_->async_fd, 0);
  EXPECT_NE(imported_->async_fd, context_->async_fd);
}

TEST_F(ImportTest, WorksAsAContext) {
  Channel channel(ibv_create_comp_channel(imported_.get()));
  ASSERT_NE(channel, nullptr);
  Cq cq(ibv_create_cq(imported_.get(), 4, nullptr, channel.get(), 0));
  EXPECT_NE(cq, nullptr);
  Pd pd(ibv_alloc_pd(imported_.get()));
  EXPECT_NE(pd, nullptr);
}

TEST_F(ImportTest, OutlivesTheOriginal) {
  Context original = open_device();
  Context imported(ibv_import_device(dup(original->cmd_fd)));
  ASSERT_NE(imported, nullptr);
  original.reset();
  Pd pd(ibv_alloc_pd(imported.get()));
  EXPECT_NE(pd, nullptr);
}

TEST_F(ImportTest, FindsTheDeviceOfTheDescriptor) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  ASSERT_NE(list, nullptr);
  for (int i = 0; i < count; i++) {
    Context original(ibv_open_device(list[i]));
    Context imported(ibv_import_device(dup(original->cmd_fd)));
    ASSERT_NE(imported, nullptr);
    EXPECT_STREQ(ibv_get_device_name(imported->device), ibv_get_device_name(list[i]));
  }
  ibv_free_device_list(list);
}

TEST_F(DeviceTest, AFileThatIsNoDeviceCannotBeImported) {
  const int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
  EXPECT_EQ(ibv_import_device(fd), nullptr);
  EXPECT_EQ(errno, ENODEV);
  close(fd);
}

// A command descriptor received by SCM_RIGHTS: its objects are in the adapter of the process that sent it.
// -1: none came.
int receive_descriptor(int socket) {
  char byte = 0;
  iovec content = {.iov_base = &byte, .iov_len = 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  msghdr message = {};
  message.msg_iov = &content;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (!becomes_readable(socket) || recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != 1) return -1;
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  int fd = -1;
  if (header != nullptr && header->cmsg_type == SCM_RIGHTS) memcpy(&fd, CMSG_DATA(header), sizeof fd);
  return fd;
}
bool send_descriptor(int socket, int fd) {
  char byte = 0;
  iovec content = {.iov_base = &byte, .iov_len = 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &content;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof fd);
  memcpy(CMSG_DATA(header), &fd, sizeof fd);
  return sendmsg(socket, &message, 0) == 1;
}

// docs/FEATURES.md; with the kernel it would be shared.
TEST_F(DeviceTest, AnotherProcesssDescriptorIsRefused) {
  int sockets[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
  const pid_t child = fork();
  if (child == 0) {
    const Context theirs = open_device();
    char byte;
    const bool sent = theirs != nullptr && send_descriptor(sockets[1], theirs->cmd_fd);
    _exit(sent && becomes_readable(sockets[1]) && read(sockets[1], &byte, 1) == 1 ? 0 : 1);
  }
  const int fd = receive_descriptor(sockets[0]);
  EXPECT_GE(fd, 0);
  EXPECT_EQ(ibv_import_device(fd), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP) << strerror(errno);
  EXPECT_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC) << "a descriptor that was not taken is still the program's";
  close(fd);
  EXPECT_EQ(write(sockets[0], "", 1), 1);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "the other process was not disturbed";
  for (const int socket : sockets) close(socket);
}

TEST_F(ImportTest, APdHasItsHandleAndContext) {
  ibv_pd* pd = ibv_import_pd(imported_.get(), pd_->handle);
  ASSERT_NE(pd, nullptr);
  EXPECT_EQ(pd->handle, pd_->handle);
  EXPECT_EQ(pd->context, imported_.get());
  ibv_unimport_pd(pd);
}

TEST_F(ImportTest, AnImportedPdsRegionsFitTheOriginalsQps) {
  ibv_pd* pd = ibv_import_pd(imported_.get(), pd_->handle);
  ASSERT_NE(pd, nullptr);
  {
    const Buffer buffer(pd, 64);
    EXPECT_EQ(carry_out(IBV_WR_RDMA_WRITE, buffer.sge(0, 64)).status, IBV_WC_SUCCESS);
  }
  ibv_unimport_pd(pd);
}

TEST_F(ImportTest, AnImportedPdsQpsUseTheOriginalsRegions) {
  ibv_pd* pd = ibv_import_pd(imported_.get(), pd_->handle);
  ASSERT_NE(pd, nullptr);
  {
    Cq cq(ibv_create_cq(imported_.get(), 16, nullptr, nullptr, 0));
    ASSERT_NE(cq, nullptr);
    ibv_qp_init_attr init = qp_init(cq.get(), cq.get());
    Qp qp(ibv_create_qp(pd, &init));
    ASSERT_NE(qp, nullptr);
    connect(qp.get(), qp->qp_num);
    local_.fill(6);
    ibv_sge sge = local_.sge(0, 100);
    ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_send(qp.get(), &wr, &bad), 0);
    EXPECT_EQ(next_status(cq.get()), IBV_WC_SUCCESS);
    EXPECT_TRUE(same_bytes(100));
  }
  ibv_unimport_pd(pd);
}

TEST_F(ImportTest, WhatWasMadeInAPdMayOutliveItsUnimporting) {
  ibv_pd* pd = ibv_import_pd(imported_.get(), pd_->handle);
  ASSERT_NE(pd, nullptr);
  Cq cq(ibv_create_cq(imported_.get(), 16, nullptr, nullptr, 0));
  ibv_qp_init_attr init = qp_init(cq.get(), cq.get());
  Qp qp(ibv_create_qp(pd, &init));
  ASSERT_NE(qp, nullptr);
  ibv_unimport_pd(pd);
  qp.reset();
  EXPECT_EQ(ibv_dealloc_pd(pd_.get()), EBUSY);  // with what the fixture has
}

TEST_F(ImportTest, APdIsBusyWithWhatItsOtherSelfHas) {
  ibv_pd* pd = ibv_import_pd(imported_.get(), pd_->handle);
  EXPECT_EQ(ibv_dealloc_pd(pd), EBUSY);
  ibv_unimport_pd(pd);
}

TEST_F(ImportTest, EitherSelfOfAPdDeallocatesIt) {
  ibv_pd* original = ibv_alloc_pd(context_.get());
  ibv_pd* pd = ibv_import_pd(imported_.get(), original->handle);
  ASSERT_NE(pd, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
  EXPECT_NE(ibv_dealloc_pd(original), 0);
  ibv_unimport_pd(original);
}

TEST_F(ImportTest, AnUnknownPdIsNotThere) {
  EXPECT_EQ(ibv_import_pd(imported_.get(), 0x7fffffff), nullptr);
  EXPECT_EQ(errno, ENOENT);
}

TEST_F(ImportTest, AnotherOpenOfTheDeviceHasOtherHandles) {
  Context other = open_device();
  EXPECT_EQ(ibv_import_pd(other.get(), pd_->handle), nullptr);
  EXPECT_EQ(errno, ENOENT);
}

TEST_F(ImportTest, AnMrHasKeysAndLengthAndNoAddress) {
  Mr original(ibv_reg_mr(pd_.get(), local_.data(), 64, kAllAccess));
  ibv_pd* pd = ibv_import_pd(imported_.get(), pd_->handle);
  ibv_mr* mr = ibv_import_mr(pd, original->handle);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(mr->addr, nullptr);
  EXPECT_EQ(mr->length, 64u);
  EXPECT_EQ(mr->lkey, original->lkey);
  EXPECT_EQ(mr->rkey, original->rkey);
  EXPECT_EQ(mr->pd, pd);
  ibv_unimport_mr(mr);
  ibv_unimport_pd(pd);
}

TEST_F(ImportTest, AnImportedMrDeregisters) {
  ibv_mr* original = ibv_reg_mr(pd_.get(), local_.data(), 64, kAllAccess);
  ibv_mr* mr = ibv_import_mr(pd_.get(), original->handle);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  const ibv_sge sge = {.addr = local_.address(), .length = 8, .lkey = original->lkey};
  EXPECT_EQ(carry_out(IBV_WR_RDMA_WRITE, sge).status, IBV_WC_LOC_PROT_ERR);
  ibv_unimport_mr(original);
}

TEST_F(ImportTest, AnImportedMrCannotBeReregistered) {
  Mr original(ibv_reg_mr(pd_.get(), local_.data(), 64, kAllAccess));
  ibv_mr* mr = ibv_import_mr(pd_.get(), original->handle);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0), IBV_REREG_MR_ERR_INPUT);
  ibv_unimport_mr(mr);
}

TEST_F(ImportTest, AnUnknownMrIsNotThere) {
  EXPECT_EQ(ibv_import_mr(pd_.get(), 0x7fffffff), nullptr);
  EXPECT_EQ(errno, ENOENT);
}

TEST_F(ImportTest, ADmIsTheSameMemory) {
  ibv_alloc_dm_attr attr = {.length = 64, .log_align_req = 0, .comp_mask = 0};
  ibv_dm* original = ibv_alloc_dm(context_.get(), &attr);
  ASSERT_NE(original, nullptr);
  ibv_dm* dm = ibv_import_dm(imported_.get(), original->handle);
  ASSERT_NE(dm, nullptr);
  const uint32_t out = 0x12345678;
  uint32_t in = 0;
  EXPECT_EQ(ibv_memcpy_to_dm(original, 8, &out, 4), 0);
  EXPECT_EQ(ibv_memcpy_from_dm(&in, dm, 8, 4), 0);
  EXPECT_EQ(in, out);
  ibv_unimport_dm(dm);
  EXPECT_EQ(ibv_free_dm(original), 0);
}

TEST_F(ImportTest, AnUnknownDmIsNotThere) {
  EXPECT_EQ(ibv_import_dm(imported_.get(), 0x7fffffff), nullptr);
  EXPECT_EQ(errno, ENOENT);
}

}  // namespace
}  // namespace verbena::test
