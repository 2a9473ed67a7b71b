// SPDX-License-Identifier: BSD-2-Clause
//
// rsocket(7), SOCK_DGRAM. librdmacm makes its address handle for itself of the port's LID alone
// (ds_add_qp_dest in rsocket.c, 44.0), which no Ethernet device accepts: these tests run with the link layer
// InfiniBand.
#include <unistd.h>

#include "fixture.h"

namespace verbena::rsockets {
namespace {

// An address of this machine; with the link layer InfiniBand no GID contains it. Empty: there is only the
// loopback's, which rsockets treat as a wildcard (rs_any_addr).
std::string own_address() {
  const int fd = socket(AF_INET, SOCK_DGRAM, 0);
  Address anywhere("192.0.2.99", 9), own("0.0.0.0", 0);
  socklen_t size = sizeof(sockaddr_storage);
  const bool known =
      fd >= 0 && connect(fd, anywhere.get(), anywhere.size()) == 0 && getsockname(fd, own.get(), &size) == 0;
  if (fd >= 0) close(fd);
  return known ? pages::text_of(own.get()) : "";
}

class DatagramTest : public testing::Test {
 protected:
  void SetUp() override {
    host_ = own_address();
    if (host_.empty()) GTEST_SKIP() << "this machine has the loopback's address only";
    receiver_ = make_bound();
    sender_ = make_bound();
    socklen_t size = sizeof(sockaddr_storage);
    ASSERT_EQ(rgetsockname(receiver_.get(), to_.get(), &size), 0) << strerror(errno);
  }
  Socket make_bound() {
    Socket socket(rsocket(AF_INET, SOCK_DGRAM, 0));
    Address any_port(host_, 0);
    EXPECT_EQ(rbind(socket.get(), any_port.get(), any_port.size()), 0) << strerror(errno);
    return socket;
  }
  ssize_t send(const char* word) {
    return rsendto(sender_.get(), word, strlen(word) + 1, 0, to_.get(), to_.size());
  }

  std::string host_;
  Address to_{"0.0.0.0", 0};
  Socket receiver_, sender_;
};

TEST_F(DatagramTest, AMessageArrivesWhole) {
  ASSERT_EQ(send("datagram"), 9) << strerror(errno);
  char word[64] = "";
  ASSERT_NE(becomes(receiver_, POLLIN) & POLLIN, 0);
  ASSERT_EQ(rrecv(receiver_.get(), word, sizeof(word), 0), 9) << strerror(errno);
  EXPECT_STREQ(word, "datagram");
}

TEST_F(DatagramTest, TheSendersAddressComesAlongAndMayBeAnswered) {
  ASSERT_EQ(send("question"), 9) << strerror(errno);
  ASSERT_NE(becomes(receiver_, POLLIN) & POLLIN, 0);
  char word[64] = "";
  Address from("0.0.0.0", 0);
  socklen_t size = sizeof(sockaddr_storage);
  ASSERT_EQ(rrecvfrom(receiver_.get(), word, sizeof(word), 0, from.get(), &size), 9);
  ASSERT_EQ(rsendto(receiver_.get(), "answer", 7, 0, from.get(), from.size()), 7) << strerror(errno);
  ASSERT_NE(becomes(sender_, POLLIN) & POLLIN, 0);
  ASSERT_EQ(rrecv(sender_.get(), word, sizeof(word), 0), 7);
  EXPECT_STREQ(word, "answer");
}

TEST_F(DatagramTest, AConnectedOneSendsToItsPeer) {
  ASSERT_EQ(rconnect(sender_.get(), to_.get(), to_.size()), 0) << strerror(errno);
  ASSERT_EQ(rsend(sender_.get(), "peer", 5, 0), 5) << strerror(errno);
  ASSERT_NE(becomes(receiver_, POLLIN) & POLLIN, 0);
  char word[64] = "";
  EXPECT_EQ(rrecv(receiver_.get(), word, sizeof(word), 0), 5);
}

}  // namespace
}  // namespace verbena::rsockets
