// SPDX-License-Identifier: BSD-2-Clause
//
// What opens a node to others: verbena key, run --ip, doctor --peer. Addresses are chosen by this test's pid.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "command_under_test.h"
#include "fabric/node.h"
#include "fabric/node_membership.h"
#include "wire/connection_listener.h"

namespace verbena::test {
namespace {

namespace fs = std::filesystem;

class NetworkCommand : public CommandTest {
 protected:
  static std::string address(int last) {
    return "127." + std::to_string(1 + getpid() / 256 % 254) + "." + std::to_string(getpid() % 256) + "." +
           std::to_string(last);
  }
  // The node's folder that `run` with these options uses.
  std::string node(std::vector<std::string> options) {
    options.insert(options.begin(), "run");
    options.insert(options.end(), {"--", "sh", "-c", "echo $VERBENA_NODE"});
    outcome_ = verbena(options);
    const std::string made = outcome_.out.substr(0, outcome_.out.find('\n'));
    hold(made);
    return made;
  }
  bool refused(std::vector<std::string> options, const std::string& because) {
    node(std::move(options));
    return outcome_.out.empty() && !outcome_.exited_with(0) &&
           outcome_.err.find(because) != std::string::npos;
  }
  std::string key_file(const std::string& name) {
    const std::string path = folder_ + "/" + name;
    EXPECT_TRUE(verbena({"key", path}).exited_with(0));
    return path;
  }
  Outcome outcome_;
};

// A process of a node, as others see it.
class Listener {
 public:
  explicit Listener(const std::string& node) {
    EXPECT_EQ(membership_.enter(node, &Listener::serve, this), 0);
    std::string problem;
    EXPECT_EQ(connection_listener_.open(membership_, nobody_, &problem), 0) << problem;
    open_.store(true);
    membership_.kick();
  }
  ~Listener() {
    membership_.leave();
    connection_listener_.close();
  }
  // A connection to the node at that address; -1: there is none within 20 seconds.
  int call(const std::string& address) const {
    wire::NetAddress to;
    wire::NetAddress::from_text(address, &to);
    connection_listener_.connect(to, {}, wire::Target::any_process(), INT64_MAX);
    for (int i = 0; i < 20000 && nobody_.fd.load() < 0; ++i) usleep(1000);
    return nobody_.fd.load();
  }

 private:
  struct Nobody final : wire::ConnectionObserver {
    void arrived(const wire::EstablishedConnection& arrived) override {
      if (arrived.begun_here)
        fd.store(arrived.fd);
      else
        kept.push_back(arrived.fd);  // open until the other end closes
    }
    void failed(uint64_t, wire::Refusal) override {}
    ~Nobody() {
      for (const int descriptor : kept) close(descriptor);
    }
    std::atomic<int> fd{-1};
    std::vector<int> kept;
  };
  static int64_t serve(void* self) {
    auto* listener = static_cast<Listener*>(self);
    if (!listener->open_.load()) return -1;
    listener->connection_listener_.serve();
    return 10'000'000;
  }
  NodeMembership membership_;
  mutable Nobody nobody_;
  mutable wire::ConnectionListener connection_listener_;
  std::atomic<bool> open_{false};
};

// It listens at the port, and accepts nobody.
class AnotherProgram {
 public:
  explicit AnotherProgram(const std::string& address) {
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_port = htons(47910);
    inet_pton(AF_INET, address.c_str(), &where.sin_addr);
    const int on = 1;
    setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&where), sizeof where), 0);
    EXPECT_EQ(listen(fd_, 1), 0);
  }
  ~AnotherProgram() { close(fd_); }

 private:
  const int fd_ = socket(AF_INET, SOCK_STREAM, 0);
};

TEST_F(NetworkCommand, MakesAKeyForItsOwnerAlone) {
  struct stat status;
  ASSERT_EQ(stat(key_file("k").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600u);
  EXPECT_EQ(status.st_size, 65);
}

TEST_F(NetworkCommand, DoesNotWriteOverAKey) {
  const std::string path = key_file("k");
  const Outcome again = verbena({"key", path});
  EXPECT_TRUE(again.exited_with(1));
  EXPECT_NE(again.err.find("/k exists, and keys are not overwritten: take another name"), std::string::npos)
      << again.err;
}

TEST_F(NetworkCommand, GivesTheDeviceTheAddressesThatWereNamed) {
  const std::string path = node({"--ip", address(2), "--ip", address(3)});
  NodeDirectory directory;
  ASSERT_EQ(directory.open(directory_path(path).c_str()), 0) << outcome_.err;
  const DeviceDescription& device = directory.devices().devices[0];
  ASSERT_EQ(device.ports[0].gid_count, 3u);
  EXPECT_EQ(wire::NetAddress{device.ports[0].gids[1].raw}.text(), address(2));
  EXPECT_EQ(wire::NetAddress{device.ports[0].gids[2].raw}.text(), address(3));
  EXPECT_STREQ(device.ports[0].gids[1].interface_name.data(), "lo");
}

TEST_F(NetworkCommand, ListensNowhereUnlessAsked) {
  NodeDirectory directory;
  ASSERT_EQ(directory.open(directory_path(node({})).c_str()), 0) << outcome_.err;
  EXPECT_EQ(directory.devices().network.enabled, 0u);
}

TEST_F(NetworkCommand, OpensAllAddressesWithNet) {
  NodeDirectory directory;
  ASSERT_EQ(directory.open(directory_path(node({"--net", "--port", "47919"})).c_str()), 0) << outcome_.err;
  const DeviceTable& devices = directory.devices();
  EXPECT_EQ(devices.network.port, 47919u);
  EXPECT_EQ(devices.network.count + 1, devices.devices[0].ports[0].gid_count);
}

TEST_F(NetworkCommand, IsAnotherNodeWithAnotherAddressOrPort) {
  const std::string first = node({"--ip", address(2)});
  EXPECT_EQ(node({"--ip", address(2)}), first);
  EXPECT_NE(node({"--ip", address(3)}), first);
  EXPECT_NE(node({"--ip", address(2), "--port", "47911"}), first);
}

TEST_F(NetworkCommand, SharesOneKeyAmongTheNodesOfAUser) {
  std::string keys[2];
  for (int i = 0; i < 2; ++i) {
    std::ifstream file(key_path(node({"--ip", address(2 + i)})));
    keys[i].assign(std::istreambuf_iterator<char>(file), {});
  }
  EXPECT_EQ(keys[0].size(), 32u);
  EXPECT_EQ(keys[0], keys[1]);
}

TEST_F(NetworkCommand, RefusesWhatIsNoAddressOfTheMachine) {
  EXPECT_TRUE(refused({"--ip", "192.0.2.77"}, "not an address of this machine")) << outcome_.err;
}

TEST_F(NetworkCommand, RefusesWhatIsNoAddress) {
  for (const char* word : {"here", "0.0.0.0", "224.0.0.1", "fe80::1"})
    EXPECT_TRUE(refused({"--ip", word}, word) && outcome_.exited_with(2)) << outcome_.err;
}

TEST_F(NetworkCommand, RefusesOptionsThatDoNotGoTogether) {
  EXPECT_TRUE(refused({"--port", "47911"}, "--ip"));
  EXPECT_TRUE(refused({"--key", key_file("k")}, "--ip"));
  EXPECT_TRUE(refused({"--ip", address(2), "--link-layer", "infiniband"}, "infiniband"));
  EXPECT_TRUE(refused({"--ip", address(2), "--port", "0"}, "--port"));
}

TEST_F(NetworkCommand, RefusesPeersThatAreNoRange) {
  for (const char* word : {"here", "192.0.2.1/24", "192.0.2.0/33", "192.0.2.0/24,x"})
    EXPECT_TRUE(refused({"--roce", address(2), "--peers", word}, "--peers") && outcome_.exited_with(2))
        << word;
  EXPECT_TRUE(refused({"--peers", "192.0.2.0/24"}, "--roce"));
  EXPECT_TRUE(refused({"--ip", address(2), "--peers", "192.0.2.0/24"}, "--roce"));
}

TEST_F(NetworkCommand, SaysThatRoceHasNoAuthentication) {
  node({"--roce", address(2)});
  EXPECT_NE(outcome_.err.find("no authentication"), std::string::npos) << outcome_.err;
  EXPECT_NE(outcome_.err.find("--peers"), std::string::npos) << outcome_.err;
  node({"--ip", address(2)});
  EXPECT_EQ(outcome_.err.find("authentication"), std::string::npos) << outcome_.err;
}

TEST_F(NetworkCommand, GivesANodeWithOtherPeersAnotherName) {
  const std::string first = node({"--roce", address(2)});
  const std::string second = node({"--roce", address(2), "--peers", "192.0.2.0/24,2001:db8::/32"});
  EXPECT_NE(first, second);
  EXPECT_EQ(node({"--roce", address(2), "--peers", "192.0.2.0/24", "--peers", "2001:db8::/32"}), second);
}

TEST_F(NetworkCommand, RefusesAKeyThatOthersCanRead) {
  const std::string path = key_file("k");
  chmod(path.c_str(), 0644);
  EXPECT_TRUE(refused({"--ip", address(2), "--key", path}, "read by others")) << outcome_.err;
}

TEST_F(NetworkCommand, RefusesAFileThatIsNoKey) {
  const std::string path = folder_ + "/k";
  std::ofstream(path) << "secret\n";
  chmod(path.c_str(), 0600);
  EXPECT_TRUE(refused({"--ip", address(2), "--key", path}, "does not hold a key")) << outcome_.err;
}

TEST_F(NetworkCommand, RefusesAPortThatAnotherProgramHas) {
  const AnotherProgram program(address(2));
  EXPECT_TRUE(refused({"--ip", address(2)}, "taken by another program")) << outcome_.err;
}

TEST_F(NetworkCommand, RefusesAnAddressThatAnotherNodeListensAt) {
  const Listener listener(node({"--ip", address(2)}));
  EXPECT_TRUE(refused({"--ip", address(2), "--node", "another"}, "is listened at by process"))
      << outcome_.err;
}

// The folders of nodes do not know of each other, but the network namespace is one.
TEST_F(NetworkCommand, RefusesAnAddressThatANodeInAnotherFolderListensAt) {
  const Listener listener(node({"--ip", address(2)}));
  const std::string elsewhere = folder_ + "/elsewhere";
  ASSERT_EQ(mkdir(elsewhere.c_str(), 0700), 0);
  environment_["TMPDIR"] = elsewhere;
  EXPECT_TRUE(refused({"--ip", address(2)}, "is listened at by process " + std::to_string(getpid())))
      << outcome_.err;
}

TEST_F(NetworkCommand, RefusesAnotherKeyWhileProcessesLiveThere) {
  const Listener listener(node({"--ip", address(2)}));
  EXPECT_TRUE(refused({"--ip", address(2), "--key", key_file("k")}, "another key")) << outcome_.err;
}

TEST_F(NetworkCommand, TakesAnotherKeyWhenNobodyIsThere) {
  const std::string first = node({"--ip", address(2)});
  EXPECT_EQ(node({"--ip", address(2), "--key", key_file("k")}), first) << outcome_.err;
}

TEST_F(NetworkCommand, ShowsWhereItListensInTheStatus) {
  node({"--ip", address(2)});
  const Outcome seen = verbena({"status", "--ip", address(2), "--json"});
  const auto network = nlohmann::json::parse(seen.out)["nodes"][0]["network"];
  EXPECT_EQ(network["port"], 47910);
  EXPECT_EQ(network["addresses"][0], address(2));
  EXPECT_NE(verbena({"status"}).out.find(address(2) + ", port 47910"), std::string::npos);
}

TEST_F(NetworkCommand, ShowsTheConnectionsInTheStatus) {
  const std::string there_path = node({"--ip", address(3)});
  const Listener here(node({"--ip", address(2)})), there(there_path);
  const int connection = here.call(address(3));
  ASSERT_GE(connection, 0);
  const Outcome seen = verbena({"status", "--ip", address(2), "--json"});
  const auto connections = nlohmann::json::parse(seen.out)["nodes"][0]["processes"][0]["connections"];
  ASSERT_EQ(connections.size(), 1u) << seen.out;
  EXPECT_EQ(connections[0]["remote"], address(3));
  EXPECT_EQ(connections[0]["begun_here"], true);
  EXPECT_GT(connections[0]["bytes_in"], 100);  // the handshake's
  EXPECT_NE(verbena({"status", "--ip", address(2)}).out.find("RETRANS"), std::string::npos);
  close(connection);
}

// ---- doctor --peer ----

TEST_F(NetworkCommand, FindsTheWayToANodeGood) {
  const Listener listener(node({"--ip", address(2)}));
  const Outcome seen = verbena({"doctor", "--peer", address(2), "--ip", address(3)});
  EXPECT_TRUE(seen.exited_with(0)) << seen.out << seen.err;
  EXPECT_NE(seen.out.find("answers in"), std::string::npos) << seen.out;
}

TEST_F(NetworkCommand, TellsThatNobodyListens) {
  const Outcome seen = verbena({"doctor", "--peer", address(9)});
  EXPECT_TRUE(seen.exited_with(1));
  EXPECT_NE(seen.out.find("nobody listens"), std::string::npos) << seen.out;
}

TEST_F(NetworkCommand, TellsThatTheOtherKeyDiffers) {
  const Listener listener(node({"--ip", address(2)}));
  const Outcome seen = verbena({"doctor", "--peer", address(2), "--key", key_file("k")});
  EXPECT_TRUE(seen.exited_with(1));
  EXPECT_NE(seen.out.find("another key"), std::string::npos) << seen.out;
}

TEST_F(NetworkCommand, TellsThatAnotherProgramAnswers) {
  const AnotherProgram program(address(2));
  const Outcome seen = verbena({"doctor", "--peer", address(2)});
  EXPECT_TRUE(seen.exited_with(1));
  EXPECT_NE(seen.out.find("nobody answers"), std::string::npos) << seen.out;
}

}  // namespace
}  // namespace verbena::test
