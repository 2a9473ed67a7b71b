// SPDX-License-Identifier: BSD-2-Clause
//
// Checks eRPC between two processes: requests of 1 byte to several megabytes, eight at a time, each answered
// with as many bytes made from its own, every byte looked at. Prints "N requests, every byte right". Built
// against eRPC by cases/erpc.py.
//
//   erpc_exchange URI           a server, until it is told to end
//   erpc_exchange URI SERVER    a client, which then tells it. A URI is HOST:PORT of eRPC's own handshake
//   over UDP
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "rpc.h"

namespace {

using Rpc = erpc::Rpc<erpc::CTransport>;

constexpr uint8_t kExchange = 2, kEnd = 3;
constexpr size_t kAtOnce = 8;  // as many requests as a session of eRPC has slots
constexpr size_t kLargest = 3 << 20, kRounds = 3;
constexpr double kPatience = 80;  // seconds

Rpc* rpc;
bool is_over;

uint8_t byte_of(size_t request, size_t at) {
  return static_cast<uint8_t>(at * 131 + request * 17 + at / 256);
}
uint8_t answer_to(uint8_t byte) { return static_cast<uint8_t>(byte ^ 0x5a); }

void answer(erpc::ReqHandle* handle, void*) {
  const auto* request = handle->get_req_msgbuf();
  const size_t size = request->get_data_size();
  auto* response = &handle->pre_resp_msgbuf_;
  if (size <= rpc->get_max_data_per_pkt()) {
    Rpc::resize_msg_buffer(response, size);
  } else {
    response = &handle->dyn_resp_msgbuf_;
    *response = rpc->alloc_msg_buffer_or_die(size);
  }
  std::transform(request->buf_, request->buf_ + size, response->buf_, answer_to);
  rpc->enqueue_response(handle, response);
}

void end(erpc::ReqHandle* handle, void*) {
  Rpc::resize_msg_buffer(&handle->pre_resp_msgbuf_, 1);
  rpc->enqueue_response(handle, &handle->pre_resp_msgbuf_);
  is_over = true;
}

void serve() {
  std::printf("listening\n");
  std::fflush(stdout);
  while (!is_over || rpc->num_active_sessions() != 0) rpc->run_event_loop_once();
}

class Client {
 public:
  explicit Client(const std::string& server) : session_(rpc->create_session(server, 0)) {
    wait([this] { return rpc->is_connected(session_); }, "no connection");
    for (size_t size = 1; size <= kLargest; size = size < 3 ? size + 1 : size * 3 - size % 7)
      sizes_.push_back(size);
    for (auto& slot : slots_) {
      slot.request = rpc->alloc_msg_buffer_or_die(kLargest);
      slot.response = rpc->alloc_msg_buffer_or_die(kLargest);
    }
  }

  void run() {
    for (size_t i = 0; i < kAtOnce; ++i) begin(i);
    wait([this] { return done_ == kRounds * sizes_.size(); }, "answers are missing");
    std::printf("%zu requests, every byte right\n", done_);
    rpc->enqueue_request(
        session_, kEnd, &slots_[0].request, &slots_[0].response, [](void*, void*) { is_over = true; },
        nullptr);
    wait([] { return is_over; }, "the server does not end");
    rpc->destroy_session(session_);
    wait([] { return rpc->num_active_sessions() == 0; }, "no disconnection");
  }

  void look(size_t slot) {
    const auto& is = slots_[slot];
    if (is.response.get_data_size() != is.size) fail("an answer of another size");
    for (size_t at = 0; at < is.size; ++at)
      if (is.response.buf_[at] != answer_to(byte_of(is.number, at))) fail("wrong bytes");
    ++done_;
    begin(slot);
  }

 private:
  struct Slot {
    erpc::MsgBuffer request, response;
    size_t number, size;
  };

  void begin(size_t slot) {
    if (begun_ == kRounds * sizes_.size()) return;
    auto& is = slots_[slot];
    is.number = begun_++;
    is.size = sizes_[is.number % sizes_.size()];
    Rpc::resize_msg_buffer(&is.request, is.size);
    for (size_t at = 0; at < is.size; ++at) is.request.buf_[at] = byte_of(is.number, at);
    rpc->enqueue_request(
        session_, kExchange, &is.request, &is.response,
        [](void* client, void* tag) { static_cast<Client*>(client)->look(reinterpret_cast<size_t>(tag)); },
        reinterpret_cast<void*>(slot));
  }

  template <typename Condition>
  void wait(Condition is_met, const char* otherwise) {
    const double end = rpc->sec_since_creation() + kPatience;
    while (!is_met()) {
      if (rpc->sec_since_creation() > end) fail(otherwise);
      rpc->run_event_loop_once();
    }
  }

  [[noreturn]] static void fail(const char* what) {
    std::fprintf(stderr, "erpc_exchange: %s\n", what);
    std::_Exit(1);
  }

  int session_;
  std::vector<size_t> sizes_;
  Slot slots_[kAtOnce];
  size_t begun_ = 0, done_ = 0;
};

}  // namespace

int main(int count, char** words) {
  if (count < 2 || count > 3) return 2;
  erpc::Nexus nexus(words[1]);
  nexus.register_req_func(kExchange, answer);
  nexus.register_req_func(kEnd, end);
  Rpc own(&nexus, nullptr, 0, [](int, erpc::SmEventType, erpc::SmErrType, void*) {});
  rpc = &own;
  if (count == 2) {
    serve();
  } else {
    Client client(words[2]);
    rpc->set_context(&client);
    client.run();
  }
}
