// SPDX-License-Identifier: BSD-2-Clause
//
// Multicast between the nodes of this test, told from others' by port and key.
#include "wire/multicast_channel.h"

#include <arpa/inet.h>
#include <errno.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "common/loopback.h"
#include "fabric/node_membership.h"
#include "unit/common/temporary_node.h"

namespace verbena::wire {
namespace {

uint16_t port() { return static_cast<uint16_t>(20000 + getpid() % 12000); }

DeviceTableOptions with_network(uint8_t last, uint8_t key) {
  DeviceTableOptions options;
  options.network.enabled = true;
  options.network.port = port();
  options.network.addresses = {loopback(last).bytes};
  options.network.key.fill(static_cast<uint8_t>(getpid() + key));
  return options;
}

struct Member {
  explicit Member(uint8_t last, uint8_t key = 1) : node(with_network(last, key)) { live(node.path()); }
  explicit Member(const Member& neighbour) : node(DeviceTableOptions{}) { live(neighbour.node.path()); }
  ~Member() { membership.leave(); }
  void live(const std::string& path) {
    EXPECT_EQ(membership.enter(path, nullptr, nullptr), 0);
    EXPECT_EQ(multicast_channel.open(membership), 0);
    EXPECT_EQ(multicast_channel.listen(), 0);
  }
  void say(const std::string& words) {
    multicast_channel.send({}, {reinterpret_cast<const uint8_t*>(words.data()), words.size()});
  }
  // Waits for it; "": nothing came.
  std::string hear() {
    std::string words;
    eventually([&] { return !(words = heard()).empty(); });
    return words;
  }
  std::string heard() {
    std::array<uint8_t, kMaxMulticastMessage> message;
    const size_t size = multicast_channel.receive(&message);
    return {reinterpret_cast<const char*>(message.data()), size};
  }
  const TemporaryNode node;
  NodeMembership membership;
  MulticastChannel multicast_channel;
};

// Bytes on the wire, which anyone can see and repeat.
class Eavesdropper {
 public:
  Eavesdropper() {
    const int on = 1;
    setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    group_.sin_family = AF_INET;
    group_.sin_port = htons(port());
    group_.sin_addr.s_addr = htonl(0xefc00000u | port());
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&group_), sizeof group_), 0);
    ip_mreq group_request{group_.sin_addr, {}};
    std::copy_n(loopback(9).bytes.begin() + 12, 4, reinterpret_cast<uint8_t*>(&group_request.imr_interface));
    EXPECT_EQ(setsockopt(fd_, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group_request, sizeof group_request), 0);
    EXPECT_EQ(setsockopt(fd_, IPPROTO_IP, IP_MULTICAST_IF, &group_request.imr_interface, 4), 0);
  }
  ~Eavesdropper() { close(fd_); }
  std::vector<uint8_t> overhear() const {
    std::vector<uint8_t> bytes(9000);
    const timeval patience{20, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    const ssize_t got = recv(fd_, bytes.data(), bytes.size(), 0);
    bytes.resize(got > 0 ? static_cast<size_t>(got) : 0);
    return bytes;
  }
  void repeat(const std::vector<uint8_t>& bytes) const {
    EXPECT_EQ(
        sendto(fd_, bytes.data(), bytes.size(), 0, reinterpret_cast<const sockaddr*>(&group_), sizeof group_),
        static_cast<ssize_t>(bytes.size()));
  }

 private:
  const int fd_ = socket(AF_INET, SOCK_DGRAM, 0);
  sockaddr_in group_{};
};

TEST(MulticastChannelTest, HearsWhatIsSaidOnAnotherNode) {
  Member speaker(2), listener(3), another(4);
  speaker.say("hello");
  EXPECT_EQ(listener.hear(), "hello");
  EXPECT_EQ(another.hear(), "hello");
}

TEST(MulticastChannelTest, HearsInEachProcessOfANode) {
  Member speaker(2), listener(3), neighbour(listener);
  speaker.say("hello");
  EXPECT_EQ(listener.hear(), "hello");
  EXPECT_EQ(neighbour.hear(), "hello");
}

TEST(MulticastChannelTest, DoesNotHearItsOwnNode) {
  Member speaker(2), neighbour(speaker), elsewhere(3);
  speaker.say("hello");
  elsewhere.say("later");
  EXPECT_EQ(neighbour.hear(), "later");
}

TEST(MulticastChannelTest, TakesLongMessages) {
  Member speaker(2), listener(3);
  const std::string words(kMaxMulticastMessage, 'x');
  speaker.say(words);
  EXPECT_EQ(listener.hear(), words);
}

TEST(MulticastChannelTest, DoesNotHearASenderWithAnotherKey) {
  Member stranger(2, 2), speaker(3), listener(4);
  stranger.say("hello");
  speaker.say("later");
  EXPECT_EQ(listener.hear(), "later");
}

TEST(MulticastChannelTest, HearsNothingTwice) {
  Member speaker(2), listener(3);
  const Eavesdropper eavesdropper;
  speaker.say("hello");
  const std::vector<uint8_t> bytes = eavesdropper.overhear();
  eavesdropper.repeat(bytes);
  speaker.say("later");
  EXPECT_EQ(listener.hear(), "hello");
  EXPECT_EQ(listener.hear(), "later");
}

TEST(MulticastChannelTest, NoticesEachByteThatIsChanged) {
  Member speaker(2), listener(3);
  const Eavesdropper eavesdropper;
  speaker.say("hello");
  const std::vector<uint8_t> bytes = eavesdropper.overhear();
  EXPECT_EQ(listener.hear(), "hello");
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::vector<uint8_t> changed = bytes;
    changed[at] ^= 1;
    eavesdropper.repeat(changed);
    EXPECT_EQ(listener.heard(), "") << "byte " << at;
  }
  speaker.say("later");
  EXPECT_EQ(listener.hear(), "later");
}

TEST(MulticastChannelTest, NeedsANetwork) {
  const TemporaryNode node(DeviceTableOptions{});
  NodeMembership membership;
  ASSERT_EQ(membership.enter(node.path(), nullptr, nullptr), 0);
  MulticastChannel multicast_channel;
  EXPECT_EQ(multicast_channel.open(membership), ENONET);
  EXPECT_EQ(multicast_channel.listen(), ENONET);
  membership.leave();
}

}  // namespace
}  // namespace verbena::wire
