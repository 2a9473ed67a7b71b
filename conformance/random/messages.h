// SPDX-License-Identifier: BSD-2-Clause
//
// What the machine asks of the objects of a random program (objects.h): in this process, or at the peer.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "random/program.h"
#include "support/messages.h"
#include "support/wire.h"

namespace conformance::random {

enum class Ask : uint16_t { claims = 300, make, connect, learn, run, poll, state, bytes };
inline constexpr auto first_kind = static_cast<uint16_t>(Ask::claims),
                      last_kind = static_cast<uint16_t>(Ask::bytes);

// What one side must know of the other. Of what is not there, 0.
struct Keys {
  std::vector<wire::EndFacts> ends;    // of each, what it takes to connect it
  std::vector<uint64_t> buffers;       // addresses
  std::vector<uint32_t> lkeys, rkeys;  // of regions
  std::vector<uint32_t> windows;       // rkeys
  std::vector<Bind> bound;             // by window: the last bind
  uint32_t xrc_number = 0;             // of the SRQ of XRC
  template <typename Archive>
  void fields(Archive& archive) {
    archive(ends, buffers, lkeys, rkeys, windows, bound, xrc_number);
  }
};

struct Make {
  Claims claims;
  Setup setup;
  uint32_t sides = 3;  // bit 0: side 0, bit 1: side 1
  template <typename Archive>
  void fields(Archive& archive) {
    archive(claims, setup, sides);
  }
};

// Takes the ends of a connection that are here from RESET to RTS.
struct ConnectEnds {
  uint32_t connection = 0;
  template <typename Archive>
  void fields(Archive& archive) {
    archive(connection);
  }
};

struct Run {
  Step step;
  template <typename Archive>
  void fields(Archive& archive) {
    auto kind = static_cast<uint8_t>(step.index());
    archive(kind);
    if (kind != step.index()) become(kind);
    std::visit([&](auto& each) { archive(each); }, step);
  }

 private:
  template <size_t index = 0>
  void become(uint8_t kind) {
    if constexpr (index < std::variant_size_v<Step>) {
      if (index == kind)
        step.emplace<index>();
      else
        become<index + 1>(kind);
    } else {
      throw wire::Malformed{};
    }
  }
};

struct Ran {
  std::string refused;  // what was expected and seen; empty: nothing was refused
  Keys keys;            // as they are now
  template <typename Archive>
  void fields(Archive& archive) {
    archive(refused, keys);
  }
};

struct OfBuffer {
  uint32_t buffer = 0;
  template <typename Archive>
  void fields(Archive& archive) {
    archive(buffer);
  }
};

struct Content {
  std::string bytes;
  template <typename Archive>
  void fields(Archive& archive) {
    archive(bytes);
  }
};

}  // namespace conformance::random
