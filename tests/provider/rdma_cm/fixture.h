// SPDX-License-Identifier: BSD-2-Clause
//
// Commands as a program writes them; the fixture plays the boundary's part (boundary/hooks_write.cc).
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "fake_cm.h"
#include "rdma_cm/open.h"

namespace verbena::test {

// An open /dev/infiniband/rdma_cm.
class Channel {
 public:
  explicit Channel(int flags = O_RDWR | O_CLOEXEC) : fd_(rdma_cm::open_device(flags, &handler_)) {
    EXPECT_GE(fd_, 0);
    known().push_back(this);
  }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  ~Channel() {
    close();
    std::erase(known(), this);
  }
  int fd() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }  // the caller closes it
  void close() {
    if (fd_ < 0) return;
    ::close(std::exchange(fd_, -1));
    end_abandoned_pipes();
  }

  // 0 or the errno.
  int write(const void* bytes, size_t length) {
    ssize_t answer = handler_.write(handler_.owner, bytes, length);
    while (answer == VERBENA_BOUNDARY_WAIT) {
      char token;
      if (read(fd_, &token, 1) != 1) return errno;
      answer = handler_.resume(handler_.owner, bytes, length);
    }
    if (answer < 0) return errno;
    EXPECT_EQ(static_cast<size_t>(answer), length);
    return 0;
  }

  template <typename Request>
  int command(uint32_t number, const Request& request, size_t out = 0) {
    std::vector<uint8_t> bytes(sizeof(rdma_ucm_cmd_hdr) + sizeof request);
    const rdma_ucm_cmd_hdr header = {.cmd = number, .in = sizeof request, .out = static_cast<uint16_t>(out)};
    memcpy(bytes.data(), &header, sizeof header);
    memcpy(bytes.data() + sizeof header, &request, sizeof request);
    return write(bytes.data(), bytes.size());
  }

  bool readable() const {
    pollfd entry = {.fd = fd_, .events = POLLIN, .revents = 0};
    return poll(&entry, 1, 0) == 1 && (entry.revents & POLLIN) != 0;
  }

  static int find(int fd, verbena_boundary_handler* out) {
    for (const Channel* channel : known()) {
      if (channel->fd_ != fd) continue;
      *out = channel->handler_;
      return 0;
    }
    return EBADF;
  }

 private:
  static std::vector<Channel*>& known() {
    static std::vector<Channel*> channels;
    return channels;
  }

  verbena_boundary_handler handler_ = {nullptr, nullptr};
  int fd_;
};

template <typename T>
uint64_t address_of(T& object) {
  return reinterpret_cast<uintptr_t>(&object);
}

inline constexpr uint64_t kNowhere = 8;  // an address that is not mapped

class RdmaCm : public ::testing::Test {
 protected:
  void SetUp() override {
    fake = FakeManager{};
    fake.route.has_device = true;
    rdma_cm::find_descriptor = Channel::find;
  }
  void TearDown() override {
    channel_.close();
    EXPECT_EQ(fake.alive, 0) << "ids that nobody has destroyed";
  }

  uint32_t create(uint64_t uid = 77, uint16_t space = RDMA_PS_TCP) { return create_on(channel_, uid, space); }
  uint32_t create_on(Channel& channel, uint64_t uid = 77, uint16_t space = RDMA_PS_TCP) {
    rdma_ucm_create_id_resp response = {.id = ~0u};
    const rdma_ucm_create_id request = {
        .uid = uid, .response = address_of(response), .ps = space, .qp_type = IBV_QPT_RC, .reserved = {}};
    EXPECT_EQ(channel.command(RDMA_USER_CM_CMD_CREATE_ID, request, sizeof response), 0);
    return response.id;
  }
  int destroy(uint32_t id, uint32_t* reported = nullptr) { return destroy_on(channel_, id, reported); }
  int destroy_on(Channel& channel, uint32_t id, uint32_t* reported = nullptr) {
    rdma_ucm_destroy_id_resp response = {.events_reported = ~0u};
    const rdma_ucm_destroy_id request = {.response = address_of(response), .id = id, .reserved = 0};
    const int error = channel.command(RDMA_USER_CM_CMD_DESTROY_ID, request, sizeof response);
    if (reported != nullptr) *reported = response.events_reported;
    return error;
  }
  int get_event(rdma_ucm_event_resp* event) { return get_event_on(channel_, event); }
  int get_event_on(Channel& channel, rdma_ucm_event_resp* event) {
    *event = {};
    const rdma_ucm_get_event request = {.response = address_of(*event)};
    return channel.command(RDMA_USER_CM_CMD_GET_EVENT, request, sizeof *event);
  }
  void listen(uint32_t id, uint32_t backlog) {
    const rdma_ucm_listen request = {.id = id, .backlog = backlog};
    ASSERT_EQ(channel_.command(RDMA_USER_CM_CMD_LISTEN, request), 0);
  }
  int accept(uint32_t id, uint64_t uid) {
    rdma_ucm_accept request = {};
    request.uid = uid;
    request.id = id;
    request.conn_param.valid = 1;
    return channel_.command(RDMA_USER_CM_CMD_ACCEPT, request);
  }
  static void set_nonblocking(const Channel& channel) {
    fcntl(channel.fd(), F_SETFL, fcntl(channel.fd(), F_GETFL) | O_NONBLOCK);
  }
  static cm::Event event_of(cm::Id* id, cm::EventType type, int status = 0) {
    cm::Event event = {};
    event.type = type;
    event.status = status;
    event.id = id;
    return event;
  }

  Channel channel_;
};

}  // namespace verbena::test
