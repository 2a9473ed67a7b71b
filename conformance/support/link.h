// SPDX-License-Identifier: BSD-2-Clause
//
// The connection to a host of ends: in this process, or at the other side of a stream. A request is answered
// before the next is sent.
//
// On a stream: length (4 bytes, of what follows), kind (2), request; back: length, outcome (1), answer or
// text.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>

#include "support/messages.h"
#include "support/wire.h"

namespace conformance {

class Host;  // host.h

enum class Outcome : uint8_t { answer, deviation, not_claimed, not_tested, malformed };

class Link {
 public:
  virtual ~Link() = default;

  // Waits at most `work` longer than for any answer. Throws what the host threw (Deviation, NotClaimed,
  // NotTested), and Deviation when it does not answer. Thread-safe.
  template <typename Answer, typename Request>
  Answer call(wire::Kind kind, const Request& request, std::chrono::milliseconds work = {}) {
    try {
      return wire::from_bytes<Answer>(exchange(kind, wire::to_bytes(request), work));
    } catch (const wire::Malformed&) {
      fail("its answer is malformed");
    }
  }

 protected:
  // The answer; throws as call() does.
  virtual std::string exchange(wire::Kind kind, const std::string& request,
                               std::chrono::milliseconds work) = 0;
  [[noreturn]] static void fail(const std::string& what);
  // Throws what the outcome stands for.
  static std::string outcome_of(Outcome outcome, std::string answer);
};

class LoopbackLink final : public Link {
 public:
  explicit LoopbackLink(Host& host) : host_(host) {}

 private:
  std::string exchange(wire::Kind kind, const std::string& request, std::chrono::milliseconds) override;
  Host& host_;
};

class StreamLink final : public Link {
 public:
  // Takes ownership of a connected stream's descriptor. Throws Deviation if the other side is none of ours.
  explicit StreamLink(int descriptor);
  ~StreamLink() override;

  // The host of another device, at HOST or HOST:PORT. Throws std::runtime_error when there is no answer
  // within the time. What concerns that device alone, and the end of its host, leaves a clause NOT TESTED:
  // call() throws FarNotClaimed or NotTested.
  static std::unique_ptr<StreamLink> to(const std::string& address, std::chrono::milliseconds time);

  const wire::HelloAnswer& peer() const { return peer_; }

 private:
  std::string exchange(wire::Kind kind, const std::string& request, std::chrono::milliseconds work) override;
  [[noreturn]] void end_with(const std::string& what) const;

  int descriptor_;
  bool is_of_another_device_ = false;
  std::mutex one_at_a_time_;
  wire::HelloAnswer peer_;
};

// The other side of a StreamLink: answers until the stream ends, is silent for too long, or brings an invalid
// request. Closes the descriptor.
void serve_stream(int descriptor, Host& host);

constexpr uint16_t default_tcp_port = 18533;
// "host", "host:7", "[::1]:7", "::1"; an empty port is the default one.
std::pair<std::string, std::string> host_and_port(const std::string& address);

}  // namespace conformance
