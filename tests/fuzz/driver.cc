// SPDX-License-Identifier: BSD-2-Clause
//
// For compilers without libFuzzer: the same targets, run with random inputs and with mutations of earlier
// ones. Knows libFuzzer's options -max_total_time=SECONDS, -seed=N and -runs=N, and runs the files that are
// named. The current input is in the file named by -artifact_prefix + "current", so that a crash can be
// repeated.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Bytes = std::vector<uint8_t>;
using Clock = std::chrono::steady_clock;

constexpr size_t kLongest = 2048;
constexpr size_t kPool = 256;

class Inputs {
 public:
  explicit Inputs(uint64_t seed) : random_(seed) {}

  Bytes next() {
    Bytes bytes = pool_.empty() || below(4) == 0 ? fresh() : mutated(pool_[below(pool_.size())]);
    if (pool_.size() < kPool)
      pool_.push_back(bytes);
    else
      pool_[below(kPool)] = bytes;
    return bytes;
  }

 private:
  size_t below(size_t end) { return std::uniform_int_distribution<size_t>(0, end - 1)(random_); }
  uint8_t byte() { return static_cast<uint8_t>(random_()); }

  Bytes fresh() {
    Bytes bytes(1 + below(below(8) == 0 ? kLongest : 256));
    for (uint8_t& value : bytes) value = below(3) == 0 ? static_cast<uint8_t>(below(8)) : byte();
    return bytes;
  }

  Bytes mutated(Bytes bytes) {
    for (size_t changes = 1 + below(8); changes > 0; --changes) {
      const size_t at = bytes.empty() ? 0 : below(bytes.size());
      switch (below(5)) {
        case 0:
          if (!bytes.empty()) bytes[at] ^= static_cast<uint8_t>(1u << below(8));
          break;
        case 1:
          if (!bytes.empty()) bytes[at] = byte();
          break;
        case 2:
          if (bytes.size() < kLongest) bytes.insert(bytes.begin() + static_cast<ptrdiff_t>(at), byte());
          break;
        case 3:
          if (!bytes.empty()) bytes.erase(bytes.begin() + static_cast<ptrdiff_t>(at));
          break;
        default: {
          const Bytes& other = pool_[below(pool_.size())];
          const size_t from = other.empty() ? 0 : below(other.size());
          const size_t count = std::min(other.size() - from, kLongest - std::min(kLongest, bytes.size()));
          bytes.insert(bytes.end(), other.begin() + static_cast<ptrdiff_t>(from),
                       other.begin() + static_cast<ptrdiff_t>(from + count));
        }
      }
    }
    return bytes;
  }

  std::mt19937_64 random_;
  std::vector<Bytes> pool_;
};

bool option(const char* argument, const char* name, std::string* value) {
  const size_t length = strlen(name);
  if (strncmp(argument, name, length) != 0 || argument[length] != '=') return false;
  *value = argument + length + 1;
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  std::string seconds = "60", seed = "1", runs = "-1", prefix;
  std::vector<std::string> files;
  for (int i = 1; i < argc; ++i)
    if (!option(argv[i], "-max_total_time", &seconds) && !option(argv[i], "-seed", &seed) &&
        !option(argv[i], "-runs", &runs) && !option(argv[i], "-artifact_prefix", &prefix))
      files.emplace_back(argv[i]);
  for (const std::string& file : files) {
    std::ifstream in(file, std::ios::binary);
    const Bytes bytes{std::istreambuf_iterator<char>(in), {}};
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  }
  if (!files.empty()) return 0;

  const auto end = Clock::now() + std::chrono::seconds(std::stoll(seconds));
  const int64_t most = std::stoll(runs);
  Inputs inputs(std::stoull(seed));
  int64_t done = 0;
  for (; Clock::now() < end && done != most; ++done) {
    const Bytes bytes = inputs.next();
    if (!prefix.empty())
      std::ofstream(prefix + "current", std::ios::binary)
          .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  }
  printf("%lld inputs with seed %s\n", static_cast<long long>(done), seed.c_str());
  return 0;
}
