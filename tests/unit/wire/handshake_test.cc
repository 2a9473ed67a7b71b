// SPDX-License-Identifier: BSD-2-Clause
//
// The beginning of a connection, without sockets: digests, addresses, keys, and the handshake with each of
// its fields wrong.
#include "wire/handshake.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "unit/common/temporary_folder.h"
#include "wire/bytes.h"
#include "wire/key.h"

namespace verbena::wire {
namespace {

std::span<const uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

std::string hex(const Digest& digest) {
  std::string text;
  for (const uint8_t byte : digest) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

// NIST, "Secure Hash Standard Validation System", and the examples beside FIPS 180-4.
TEST(Sha256, GivesTheStandardsExamples) {
  const std::string million(1'000'000, 'a');
  const std::pair<std::string, const char*> examples[] = {
      {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
      {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
      {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
       "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
      {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopq"
       "rst"
       "nopqrstu",
       "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
      {million, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
  };
  for (const auto& [text, digest] : examples) EXPECT_EQ(hex(sha256(bytes_of(text))), digest) << text.size();
}

TEST(Sha256, DoesNotMindHowItsInputIsCut) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += static_cast<char>(i);
  for (size_t length : {54u, 55u, 56u, 57u, 63u, 64u, 65u, 119u, 120u, 128u, 200u}) {
    Sha256 hash;
    for (size_t i = 0; i < length; ++i) hash.add(bytes_of(text.substr(i, 1)));
    EXPECT_EQ(hex(hash.finish()), hex(sha256(bytes_of(text.substr(0, length))))) << length;
  }
}

// RFC 4231, test cases 1 to 4, 6 and 7.
TEST(HmacSha256, GivesTheExamplesOfRfc4231) {
  std::string counting;
  for (char c = 1; c <= 25; ++c) counting += c;
  const struct {
    std::string key, data;
    const char* digest;
  } examples[] = {
      {std::string(20, '\x0b'), "Hi There",
       "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
      {"Jefe", "what do ya want for nothing?",
       "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
      {std::string(20, '\xaa'), std::string(50, '\xdd'),
       "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"},
      {counting, std::string(50, '\xcd'), "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b"},
      {std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First",
       "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
      {std::string(131, '\xaa'),
       "This is a test using a larger than block-size key and a larger than block-size data. The key needs "
       "to be hashed "
       "before being used by the HMAC algorithm.",
       "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2"},
  };
  for (const auto& example : examples)
    EXPECT_EQ(hex(hmac_sha256(bytes_of(example.key), {bytes_of(example.data)})), example.digest)
        << example.data;
}

NetAddress address(const char* text) {
  NetAddress out;
  EXPECT_TRUE(NetAddress::from_text(text, &out)) << text;
  return out;
}

TEST(NetAddresses, AreSpelledAsTheyWereWritten) {
  for (const char* text : {"127.0.0.2", "192.0.2.255", "::1", "2001:db8::7", "fe80::1"})
    EXPECT_EQ(address(text).text(), text);
}

TEST(NetAddresses, AreNoNamesNorZones) {
  NetAddress out;
  for (const char* text : {"", "localhost", "1.2.3", "1.2.3.4.5", "[::1]", "fe80::1%lo", "1.2.3.4:5", " ::1"})
    EXPECT_FALSE(NetAddress::from_text(text, &out)) << text;
}

TEST(NetAddresses, OfIpv4AreMappedIntoIpv6AsGidsAre) {
  const NetAddress mapped = address("::ffff:192.0.2.1");
  EXPECT_EQ(mapped, address("192.0.2.1"));
  EXPECT_TRUE(mapped.is_ipv4());
  EXPECT_EQ(mapped.text(), "192.0.2.1");
}

TEST(NetAddresses, SurviveTheirWayThroughASocketAddress) {
  for (const char* text : {"127.0.0.2", "2001:db8::7"}) {
    sockaddr_storage storage;
    address(text).to_socket_address(4711, &storage);
    NetAddress back;
    ASSERT_TRUE(NetAddress::from_socket_address(storage, &back));
    EXPECT_EQ(back, address(text));
  }
}

TEST(NetAddresses, AreReachableUnlessTheyAreNobodysOrOneLinks) {
  for (const char* text : {"127.0.0.2", "10.0.0.1", "::1", "2001:db8::7"})
    EXPECT_TRUE(address(text).is_reachable()) << text;
  for (const char* text : {"0.0.0.0", "224.0.0.1", "255.255.255.255", "::", "ff02::1", "fe80::1"})
    EXPECT_FALSE(address(text).is_reachable()) << text;
}

// The key's file.

class KeyFile : public ::testing::Test {
 protected:
  void write(const std::string& text, mode_t mode = 0600) {
    std::ofstream(path_) << text;
    chmod(path_.c_str(), mode);
  }
  int read() { return read_key(path_, &key_, &problem_); }

  TemporaryFolder folder_;
  const std::string path_ = folder_.path() + "/k";
  std::string problem_;
  NetworkKey key_{};
};

TEST_F(KeyFile, IsReadAsItWasMade) {
  ASSERT_EQ(make_key(path_, &problem_), 0) << problem_;
  EXPECT_EQ(read(), 0) << problem_;
  EXPECT_NE(key_, NetworkKey{});
}

TEST_F(KeyFile, IsItsOwnersAlone) {
  ASSERT_EQ(make_key(path_, &problem_), 0);
  struct stat status;
  ASSERT_EQ(stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600u);
}

TEST_F(KeyFile, IsNotWrittenOver) {
  ASSERT_EQ(make_key(path_, &problem_), 0);
  EXPECT_EQ(make_key(path_, &problem_), EEXIST);
  EXPECT_EQ(read(), 0);
}

TEST_F(KeyFile, IsRefusedWhenOthersCanReadIt) {
  for (const mode_t mode : {0640u, 0604u, 0660u, 0666u}) {
    write(std::string(64, 'a') + "\n", mode);
    EXPECT_EQ(read(), EPERM) << std::oct << mode;
    EXPECT_NE(problem_.find("chmod 600"), std::string::npos) << problem_;
  }
}

TEST_F(KeyFile, IsRefusedWithAnythingButAKeyInIt) {
  for (const std::string& text :
       {std::string(), std::string("\n"), std::string(63, 'a') + "\n", std::string(65, 'a'),
        std::string(63, 'a') + "g\n", std::string(64, 'A') + "\n", std::string(64, 'a') + "\n\n",
        std::string(100'000, 'a')}) {
    write(text);
    EXPECT_EQ(read(), EINVAL) << text.size();
  }
}

TEST_F(KeyFile, OfAUserIsMadeOnce) {
  NetworkKey first{}, second{};
  ASSERT_EQ(user_key(folder_.path(), &first, &problem_), 0) << problem_;
  ASSERT_EQ(user_key(folder_.path(), &second, &problem_), 0) << problem_;
  EXPECT_EQ(first, second);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), {}), 1);
}

// ---- the handshake ----

constexpr uint64_t kCallersNode = 0x1111, kCalledNode = 0x2222;

class Handshake : public ::testing::Test {
 protected:
  Handshake() {
    key_.fill(7);
    other_key_.fill(8);
    hello_ = {{kCallersNode, 3, 4}, address("127.0.0.2"), address("127.0.0.3"), Target::queue_pair(17), {}};
    hello_.nonce.fill(1);
    nonce_.fill(2);
    own_ = {address("127.0.0.3"), address("::1")};
  }

  ResponderHandshake called() const { return {key_, nonce_}; }
  InitiatorHandshake caller() const { return {key_, hello_}; }
  void hello(ResponderHandshake& called, const std::array<uint8_t, kHelloSize>& bytes) const {
    called.hello_arrived(bytes, kCalledNode, own_);
  }
  // Everything but the welcome.
  void shake(InitiatorHandshake& caller, ResponderHandshake& called) const {
    hello(called, caller.hello());
    caller.challenge_arrived(called.challenge());
    called.proof_arrived(caller.proof());
  }
  Refusal answer_to(const Hello& said) const {
    ResponderHandshake there = called();
    hello(there, encode(said));
    return there.refusal();
  }

  NetworkKey key_, other_key_;
  Hello hello_;
  Nonce nonce_;
  std::array<NetAddress, 2> own_;
};

TEST_F(Handshake, ConnectsPeersWithTheSameKey) {
  InitiatorHandshake here = caller();
  ResponderHandshake there = called();
  shake(here, there);
  ASSERT_EQ(there.step(), ResponderHandshake::Step::kAdmitted);
  here.welcome_arrived(welcome(key_, there.admitted().transcript, {kCalledNode, 9, 10}, Refusal::kNone));
  ASSERT_EQ(here.step(), InitiatorHandshake::Step::kDone);
  EXPECT_EQ(here.welcomer(), (ProcessId{kCalledNode, 9, 10}));
  EXPECT_EQ(there.admitted().hello.initiator, hello_.initiator);
  EXPECT_EQ(there.admitted().hello.target, hello_.target);
  EXPECT_EQ(here.wanted() + there.wanted(), 0u);
}

TEST_F(Handshake, LetsACallerWithAnotherKeyNotIn) {
  InitiatorHandshake here(other_key_, hello_);
  ResponderHandshake there = called();
  shake(here, there);
  EXPECT_EQ(here.refusal(), Refusal::kKey);
  EXPECT_EQ(there.refusal(), Refusal::kKey);
}

TEST_F(Handshake, RefusesAPeerThatOnlyPretendsToHaveTheKey) {
  InitiatorHandshake here = caller();
  ResponderHandshake pretender(other_key_, nonce_);
  hello(pretender, here.hello());
  here.challenge_arrived(pretender.challenge());
  EXPECT_EQ(here.refusal(), Refusal::kKey);
  for (size_t i = 8; i < kProofSize; ++i) EXPECT_EQ(here.proof()[i], 0) << "a proof is shown to a stranger";
}

TEST_F(Handshake, CanTellTargets) {
  for (const Target& target :
       {Target::queue_pair(0xfffffe), Target::cm_listener(0x01060000001234ull), Target::any_process(),
        Target::of_process({kCalledNode, 1, 2}), Target::cm_of_process({kCalledNode, 1, 2})}) {
    Hello said = hello_;
    said.target = target;
    Hello heard;
    ASSERT_EQ(decode(encode(said), &heard), Refusal::kNone);
    EXPECT_EQ(heard.target, target);
  }
}

// After a change of any other byte the proofs do not match, at the latest.
TEST_F(Handshake, NoticesEachByteOfAHelloThatIsChangedOnTheWay) {
  for (size_t at = 0; at < kHelloSize; ++at) {
    InitiatorHandshake here = caller();
    ResponderHandshake there = called();
    auto bytes = here.hello();
    bytes[at] ^= 0x40;
    hello(there, bytes);
    here.challenge_arrived(there.challenge());
    EXPECT_EQ(here.step(), InitiatorHandshake::Step::kRefused) << "byte " << at;
  }
}

TEST_F(Handshake, NoticesEachByteOfAChallengeThatIsChangedOnTheWay) {
  for (size_t at = 0; at < kChallengeSize; ++at) {
    InitiatorHandshake here = caller();
    ResponderHandshake there = called();
    hello(there, here.hello());
    auto bytes = there.challenge();
    bytes[at] ^= 0x40;
    here.challenge_arrived(bytes);
    EXPECT_EQ(here.step(), InitiatorHandshake::Step::kRefused) << "byte " << at;
  }
}

TEST_F(Handshake, NoticesEachByteOfAProofThatIsChangedOnTheWay) {
  for (size_t at = 0; at < kProofSize; ++at) {
    InitiatorHandshake here = caller();
    ResponderHandshake there = called();
    hello(there, here.hello());
    here.challenge_arrived(there.challenge());
    auto bytes = here.proof();
    bytes[at] ^= 0x40;
    there.proof_arrived(bytes);
    EXPECT_EQ(there.step(), ResponderHandshake::Step::kRefused) << "byte " << at;
  }
}

TEST_F(Handshake, NoticesEachByteOfAWelcomeThatIsChangedOnTheWay) {
  for (const Refusal said : {Refusal::kNone, Refusal::kNobody})
    for (size_t at = 0; at < kWelcomeSize; ++at) {
      InitiatorHandshake here = caller();
      ResponderHandshake there = called();
      shake(here, there);
      auto bytes = welcome(key_, there.admitted().transcript, {kCalledNode, 9, 10}, said);
      bytes[at] ^= 0x40;
      here.welcome_arrived(bytes);
      EXPECT_EQ(here.step(), InitiatorHandshake::Step::kRefused) << "byte " << at;
      EXPECT_NE(here.refusal(), Refusal::kNobody) << "byte " << at;
    }
}

TEST_F(Handshake, BelievesARefusalOfAPeerWithTheKey) {
  for (const Refusal said : {Refusal::kNobody, Refusal::kBusy}) {
    InitiatorHandshake here = caller();
    ResponderHandshake there = called();
    shake(here, there);
    here.welcome_arrived(welcome(key_, there.admitted().transcript, {kCalledNode, 9, 10}, said));
    EXPECT_EQ(here.refusal(), said);
  }
}

TEST_F(Handshake, IsNotRepeatedWithWhatWasSaidBefore) {
  InitiatorHandshake before = caller();
  ResponderHandshake then = called();
  shake(before, then);
  Nonce fresh;
  fresh.fill(3);
  ResponderHandshake there(key_, fresh);
  hello(there, before.hello());
  there.proof_arrived(before.proof());
  EXPECT_EQ(there.refusal(), Refusal::kKey);
}

TEST_F(Handshake, TakesNoAnswerToAnotherHello) {
  InitiatorHandshake before = caller();
  ResponderHandshake then = called();
  hello(then, before.hello());
  hello_.nonce.fill(9);
  InitiatorHandshake here = caller();
  here.challenge_arrived(then.challenge());
  EXPECT_EQ(here.refusal(), Refusal::kKey);
}

// Both proofs are over the same bytes; only the label tells them apart.
TEST_F(Handshake, TakesNoProofOfItsOwnBack) {
  InitiatorHandshake here = caller();
  ResponderHandshake there = called();
  hello(there, here.hello());
  std::array<uint8_t, kProofSize> reflected;
  here.challenge_arrived(there.challenge());
  std::copy_n(here.proof().begin(), 8, reflected.begin());
  std::copy_n(there.challenge().begin() + 56, 32, reflected.begin() + 8);
  there.proof_arrived(reflected);
  EXPECT_EQ(there.refusal(), Refusal::kKey);
}

TEST_F(Handshake, TakesNoWelcomeForAnotherTalk) {
  InitiatorHandshake here = caller();
  ResponderHandshake there = called();
  shake(here, there);
  here.welcome_arrived(welcome(key_, Digest{}, {kCalledNode, 9, 10}, Refusal::kNone));
  EXPECT_EQ(here.refusal(), Refusal::kKey);
}

TEST_F(Handshake, TellsBothEndsOfAnotherVersion) {
  InitiatorHandshake here = caller();
  ResponderHandshake there = called();
  auto bytes = here.hello();
  put32(bytes.data() + 4, kProtocolVersion + 1);
  hello(there, bytes);
  EXPECT_EQ(there.refusal(), Refusal::kVersion);
  EXPECT_EQ(there.their_version(), kProtocolVersion + 1);
  here.challenge_arrived(there.challenge());
  EXPECT_EQ(here.refusal(), Refusal::kVersion);
}

TEST_F(Handshake, WithAChallengeOfAnotherVersionSaysWhich) {
  InitiatorHandshake here = caller();
  ResponderHandshake there = called();
  hello(there, here.hello());
  auto bytes = there.challenge();
  put32(bytes.data() + 4, 77);
  here.challenge_arrived(bytes);
  EXPECT_EQ(here.refusal(), Refusal::kVersion);
  EXPECT_EQ(here.their_version(), 77u);
}

TEST_F(Handshake, WantsAnAddressOfItsOwnCalled) {
  Hello said = hello_;
  said.to = address("127.0.0.4");
  EXPECT_EQ(answer_to(said), Refusal::kAddress);
}

TEST_F(Handshake, IsNotWithOneself) {
  Hello said = hello_;
  said.initiator.node = kCalledNode;
  EXPECT_EQ(answer_to(said), Refusal::kSelf);
}

TEST_F(Handshake, KnowsItsOwnHelloAgain) {
  InitiatorHandshake here = caller();
  ResponderHandshake there = called();
  there.hello_arrived(here.hello(), kCallersNode + 1, own_);
  // Forwarded to the caller's own node, which really answered.
  ResponderHandshake self = called();
  self.hello_arrived(here.hello(), kCallersNode, own_);
  EXPECT_EQ(self.refusal(), Refusal::kSelf);
  here.challenge_arrived(self.challenge());
  EXPECT_EQ(here.step(), InitiatorHandshake::Step::kRefused);
}

TEST_F(Handshake, RefusesTargetsThatMakeNoSense) {
  const ProcessId somebody{kCalledNode, 1, 2};
  for (const Target& target :
       {Target{static_cast<TargetKind>(0), 0, 0, {}}, Target{static_cast<TargetKind>(7), 0, 0, {}},
        Target{TargetKind::kQueuePair, 1u << 24, 0, {}}, Target{TargetKind::kQueuePair, 1, 1, {}},
        Target{TargetKind::kQueuePair, 1, 0, somebody}, Target{TargetKind::kCmListener, 1, 1, {}},
        Target{TargetKind::kProcess, 0, 0, {}}, Target{TargetKind::kProcess, 1, 0, somebody},
        Target{TargetKind::kNode, 1, 0, {}}, Target{TargetKind::kNode, 0, 0, somebody}}) {
    Hello said = hello_;
    said.target = target;
    EXPECT_EQ(answer_to(said), Refusal::kMalformed) << static_cast<int>(target.kind);
  }
}

TEST_F(Handshake, RefusesNobodyAsACaller) {
  Hello said = hello_;
  said.initiator.generation = 0;
  EXPECT_EQ(answer_to(said), Refusal::kMalformed);
}

TEST_F(Handshake, IsOverOnceItIsRefused) {
  ResponderHandshake there = called();
  hello(there, std::array<uint8_t, kHelloSize>{});
  ASSERT_EQ(there.step(), ResponderHandshake::Step::kRefused);
  InitiatorHandshake here = caller();
  hello(there, here.hello());
  there.proof_arrived(std::array<uint8_t, kProofSize>{});
  EXPECT_EQ(there.step(), ResponderHandshake::Step::kRefused);
  EXPECT_EQ(there.wanted(), 0u);
}

}  // namespace
}  // namespace verbena::wire
