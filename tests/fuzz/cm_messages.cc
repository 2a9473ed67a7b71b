// SPDX-License-Identifier: BSD-2-Clause
//
// Any bytes from another process of the node: to the decoder by itself (what it accepts, it encodes to the
// same bytes), and to the whole service, over its socket, while ids listen and connect. No crash, and the
// service still answers afterwards.
#include <arpa/inet.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cm/cm.h"
#include "cm/message.h"
#include "fabric/node.h"
#include "fabric/node_directory.h"
#include "fabric/slot_folder.h"
#include "input.h"

namespace verbena::fuzz {
namespace {

using namespace cm;

constexpr uint16_t kPort = 7471;

std::mutex mutex;
std::vector<Id*> newcomers;

bool on_event(void*, const Event& event) {
  if (event.type != EventType::kConnectRequest) return true;
  const std::lock_guard lock(mutex);
  if (newcomers.size() >= 64) return false;
  newcomers.push_back(event.id);
  return true;
}

sockaddr_in address() {
  sockaddr_in value = {};
  value.sin_family = AF_INET;
  value.sin_port = htons(kPort);
  value.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return value;
}

Id* new_id(Service* service, PortSpace space, ibv_qp_type type) {
  Id* id = nullptr;
  require(create_id(service, space, type, on_event, nullptr, &id) == 0, "an id can be made");
  return id;
}

Id* new_listener(Service* service, PortSpace space, ibv_qp_type type) {
  Id* id = new_id(service, space, type);
  const sockaddr_in local = address();
  require(bind_address(id, reinterpret_cast<const sockaddr*>(&local)) == 0, "the port is free");
  require(cm::listen(id, 16) == 0, "a bound id listens");
  return id;
}

// The first message over a link (fabric/service_socket.cc, cm/link.cc).
struct Hello {
  uint32_t socket_magic, service;
  uint32_t magic, version;
  uint64_t node;
  uint32_t slot, generation;
};

class Scene {
 public:
  Scene() {
    require(acquire_service(&service_) == 0, "there is a node");
    const char* node = getenv("VERBENA_NODE");
    require(directory_.open(directory_path(node).c_str()) == 0, "the node has a directory");
    for (uint32_t i = 0; i < kMaxSlots; ++i)
      if (directory_.occupied(i) && directory_.slot(i).pid == getpid()) slot_ = i;
    generation_ = directory_.slot(slot_).generation;
    folder_ = slot_folder(node, slot_, generation_);
    listeners_ = {new_listener(service_, PortSpace::kTcp, IBV_QPT_RC),
                  new_listener(service_, PortSpace::kUdp, IBV_QPT_UD)};
  }

  // A connection to the service, greeted with a hello, or with bytes of the input instead.
  int connect(Input& input) {
    const int fd = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    sockaddr_un to = {};
    to.sun_family = AF_UNIX;
    snprintf(to.sun_path, sizeof to.sun_path, "%s/service", folder_.c_str());
    require(::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0, "the service accepts");
    Hello hello = {0x31565356, 4, 0x484d4356, 1, directory_.header().node_id, slot_, generation_};
    if (input.below(16) == 0) input.take(&hello, sizeof hello);
    ::send(fd, &hello, sizeof hello, MSG_NOSIGNAL);
    return fd;
  }

  // The service has read everything, or has closed the connection.
  static void wait_taken(int fd) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    int waiting = 0;
    while (ioctl(fd, SIOCOUTQ, &waiting) == 0 && waiting > 0) {
      require(std::chrono::steady_clock::now() < deadline, "the service reads");
      std::this_thread::yield();
    }
  }

  // Ids that have come with requests: used and destroyed.
  void settle(Input& input) {
    std::vector<Id*> mine;
    {
      const std::lock_guard lock(mutex);
      mine.swap(newcomers);
    }
    for (Id* id : mine) {
      ConnectionParameters parameters = {};
      parameters.qp_number = 5;
      if (input.below(2) == 0) cm::accept(id, &parameters, {});
      if (input.below(4) == 0) cm::reject(id, {}, 0);
      if (input.below(2) == 0) cm::disconnect(id);
      destroy_id(id);
    }
  }

  // The service is alive: an id connects to its listener and gets an event.
  void begin_connection(Input& input) {
    Id* id = new_id(service_, PortSpace::kTcp, IBV_QPT_RC);
    const sockaddr_in to = address();
    require(resolve_address(id, nullptr, reinterpret_cast<const sockaddr*>(&to), 100) == 0,
            "the address resolves");
    active_.push_back(id);
    if (active_.size() < 4u + input.below(4)) return;
    destroy_id(active_.front());
    active_.erase(active_.begin());
  }

  void go_on(Input& input) {
    for (Id* id : active_) {
      ConnectionParameters parameters = {};
      parameters.qp_number = 6;
      switch (input.below(4)) {
        case 0:
          resolve_route(id, 100);
          break;
        case 1:
          cm::connect(id, parameters, {});
          break;
        case 2:
          cm::disconnect(id);
          break;
        default:
          cm::notify(id, IBV_EVENT_COMM_EST);
      }
    }
  }

 private:
  Service* service_ = nullptr;
  NodeDirectory directory_;
  uint32_t slot_ = 0, generation_ = 0;
  std::string folder_;
  std::vector<Id*> listeners_, active_;
};

// A message that is mostly plausible, then damaged.
size_t build(Input& input, uint8_t* out, size_t room) {
  Message message = {};
  message.kind = static_cast<MessageKind>(0x10 + input.below(9));
  for (uint64_t& field : message.fields) field = input.below(4) == 0 ? input.byte() : input.below(4);
  if (input.below(2) == 0)
    message[Field::kServiceId] = uint64_t{input.below(2) == 0 ? 0x0106u : 0x0111u} << 16 | kPort;
  if (input.below(4) == 0) message[Field::kTransaction] = input.take<uint64_t>();
  input.take(message.private_data.data(), input.below(64));
  Frame frame;
  encode(message, frame);
  const size_t size = input.below(16) == 0 ? input.byte() : frame.size();
  memcpy(out, frame.data(), std::min({size, room, frame.size()}));
  for (uint8_t damage = input.below(4); damage > 1; --damage)
    out[input.take<uint16_t>() % kFrameSize] = input.byte();
  return std::min(size, room);
}

void check_decoder(const uint8_t* bytes, size_t size) {
  Message message;
  if (!decode({bytes, size}, &message)) return;
  Frame again;
  encode(message, again);
  require(size == again.size() && memcmp(bytes, again.data(), size) == 0,
          "a frame that is taken is written the same");
}

void run(Input input) {
  static Scene& scene = *new Scene;
  const int fd = scene.connect(input);
  for (int i = 0; i < 64 && !input.empty(); ++i) {
    uint8_t bytes[kFrameSize + 32] = {};
    size_t size = 0;
    if (input.below(4) != 0) {
      size = build(input, bytes, sizeof bytes);
    } else {
      size = input.take<uint16_t>() % sizeof bytes;
      input.take(bytes, size);
    }
    check_decoder(bytes, size);
    if (::send(fd, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) break;
    if (input.below(8) == 0) scene.begin_connection(input);
    if (input.below(4) == 0) scene.go_on(input);
    if (input.below(4) == 0) scene.settle(input);
  }
  Scene::wait_taken(fd);
  scene.settle(input);
  ::close(fd);
}

}  // namespace
}  // namespace verbena::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  verbena::fuzz::run(verbena::fuzz::Input(data, size));
  return 0;
}
