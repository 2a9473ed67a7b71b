// SPDX-License-Identifier: BSD-2-Clause
//
// Yardsticks of our own: what the kernel and the memory of this machine can do without any adapter on top.
// One measure per call; prints one line of JSON. Times are of one operation (for the hand-overs: half a round
// trip), taken over short batches, so that reading the clock adds little.
//
//   verbena_bench_micro MEASURE [--size BYTES] [--count OPERATIONS] [--cpus A,B]
//
// Sources: process_vm_readv(2), proc(5) (/proc/pid/mem), unix(7) (SCM_RIGHTS), tcp(7).
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <new>
#include <string>
#include <string_view>
#include <vector>

namespace verbena::bench {
namespace {

constexpr size_t kCacheLine = 64;
constexpr unsigned kTimeLimitSeconds = 60;

struct Options {
  size_t size = 8;
  size_t count = 100000;
  int initiator_cpu = -1;  // -1: any, chosen by the scheduler
  int target_cpu = -1;
};

[[noreturn]] void die(const char* what) {
  std::fprintf(stderr, "verbena_bench_micro: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

void pin(int cpu) {
  if (cpu < 0) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(cpu), &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) die("sched_setaffinity");
}

// Memory with all pages present: each is touched before the measurement.
char* map_pages(size_t size, int sharing) {
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, sharing | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) die("mmap");
  std::memset(memory, 1, size);
  return static_cast<char*>(memory);
}

// Microseconds per operation, one sample per batch. The first tenth is a warm-up and not counted.
template <typename Operation>
std::vector<double> sample(const Options& options, Operation operation) {
  const size_t batch = options.size >= 65536 ? 4 : 64;
  const size_t batches = std::max<size_t>(options.count / batch, 10);
  const size_t warm_up = batches / 10;
  std::vector<double> samples;
  samples.reserve(batches);
  for (size_t i = 0; i < batches + warm_up; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    for (size_t j = 0; j < batch; ++j) operation();
    const std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - begin;
    if (i >= warm_up) samples.push_back(spent.count() / static_cast<double>(batch));
  }
  return samples;
}

// A child process on the other CPU. It ends with its parent in any case.
class Child {
 public:
  template <typename Body>
  explicit Child(int cpu, Body body) {
    pid_ = fork();
    if (pid_ < 0) die("fork");
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(kTimeLimitSeconds);
    pin(cpu);
    body();
    _exit(0);
  }
  ~Child() { kill(pid_, SIGKILL); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

// What a sleeping target sends its initiator: the address of its buffer, and its memory as a descriptor.
struct Target {
  uint64_t address;
  int memory;
};

void send_target(int socket, const Target& target) {
  uint64_t address = target.address;
  iovec part{&address, sizeof address};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &target.memory, sizeof(int));
  if (sendmsg(socket, &message, 0) < 0) die("sendmsg");
}

Target receive_target(int socket) {
  Target target{};
  iovec part{&target.address, sizeof target.address};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (recvmsg(socket, &message, 0) != static_cast<ssize_t>(sizeof target.address)) die("recvmsg");
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr) die("no descriptor came along");
  std::memcpy(&target.memory, CMSG_DATA(header), sizeof(int));
  return target;
}

// Times `move(pid, target, local buffer)` against a target that sleeps in read().
template <typename Move>
std::vector<double> against_sleeper(const Options& options, Move move) {
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) die("socketpair");
  const Child sleeper(options.target_cpu, [&] {
    const char* buffer = map_pages(options.size, MAP_PRIVATE);
    const int memory = open("/proc/self/mem", O_RDWR);
    if (memory < 0) die("open /proc/self/mem");
    send_target(sockets[1], {reinterpret_cast<uintptr_t>(buffer), memory});
    char end;
    if (read(sockets[1], &end, 1) < 0) die("read");
  });
  pin(options.initiator_cpu);
  const Target target = receive_target(sockets[0]);
  char* local = map_pages(options.size, MAP_PRIVATE);
  return sample(options, [&] {
    if (move(sleeper.pid(), target, local) != static_cast<ssize_t>(options.size)) die("short or failed move");
  });
}

std::vector<double> process_vm_write(const Options& options) {
  return against_sleeper(options, [&](pid_t pid, const Target& target, char* local) {
    const iovec from{local, options.size};
    const iovec to{reinterpret_cast<void*>(target.address), options.size};
    return process_vm_writev(pid, &from, 1, &to, 1, 0);
  });
}

std::vector<double> process_vm_read(const Options& options) {
  return against_sleeper(options, [&](pid_t pid, const Target& target, char* local) {
    const iovec to{local, options.size};
    const iovec from{reinterpret_cast<void*>(target.address), options.size};
    return process_vm_readv(pid, &to, 1, &from, 1, 0);
  });
}

std::vector<double> memory_descriptor_write(const Options& options) {
  return against_sleeper(options, [&](pid_t, const Target& target, char* local) {
    return pwrite(target.memory, local, options.size, static_cast<off_t>(target.address));
  });
}

// Where the two buffers together are about as large as a cache, it depends on their physical pages how much
// of them stays there: 1 MiB each, with 2 MiB of L2, takes 33 to 39 us in one process or the next. So the
// samples are of several pairs, all of which stay mapped.
std::vector<double> memory_copy(const Options& options) {
  constexpr size_t kPairs = 8;
  pin(options.initiator_cpu);
  Options of_a_pair = options;
  of_a_pair.count = std::max<size_t>(options.count / kPairs, 1);
  std::vector<double> samples;
  for (size_t pair = 0; pair < kPairs; ++pair) {
    const char* from = map_pages(options.size, MAP_PRIVATE);
    char* to = map_pages(options.size, MAP_PRIVATE);
    const std::vector<double> part = sample(of_a_pair, [&] {
      std::memcpy(to, from, options.size);
      asm volatile("" : : "r"(to), "r"(from) : "memory");
    });
    samples.insert(samples.end(), part.begin(), part.end());
  }
  return samples;
}

// Half round trips of a counter between two polling processes. `answer` runs in the child for every odd value
// seen, `ask` in the parent; both carry `value` over to the other's word.
struct Words {
  alignas(kCacheLine) std::atomic<uint64_t> asked;
  alignas(kCacheLine) std::atomic<uint64_t> answered;
};

template <typename Carry>
std::vector<double> ping_pong(const Options& options, int sharing, Carry carry) {
  auto* words = new (map_pages(sizeof(Words), sharing)) Words{};
  const pid_t parent = getpid();
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);  // Yama lets a child write to its parent only then; ptrace(2)
  const Child child(options.target_cpu, [&] {
    for (uint64_t value = 1;; ++value) {
      while (words->asked.load(std::memory_order_acquire) != value) {
      }
      carry(parent, words->answered, value);
    }
  });
  pin(options.initiator_cpu);
  uint64_t value = 0;
  std::vector<double> samples = sample(options, [&] {
    carry(child.pid(), words->asked, ++value);
    while (words->answered.load(std::memory_order_acquire) != value) {
    }
  });
  for (double& round_trip : samples) round_trip /= 2;
  return samples;
}

std::vector<double> hand_over(const Options& options) {
  return ping_pong(options, MAP_SHARED, [](pid_t, std::atomic<uint64_t>& word, uint64_t value) {
    word.store(value, std::memory_order_release);
  });
}

// The words are private copies at one address after fork: only the system call carries a value across.
std::vector<double> process_vm_hand_over(const Options& options) {
  return ping_pong(options, MAP_PRIVATE, [](pid_t pid, std::atomic<uint64_t>& word, uint64_t value) {
    const iovec from{&value, sizeof value};
    const iovec to{&word, sizeof value};
    if (process_vm_writev(pid, &from, 1, &to, 1, 0) != sizeof value) die("process_vm_writev");
  });
}

// The same by pwrite(2) to the other's memory as a file, opened once.
std::vector<double> memory_hand_over(const Options& options) {
  int memory = -1;
  return ping_pong(options, MAP_PRIVATE,
                   [memory](pid_t pid, std::atomic<uint64_t>& word, uint64_t value) mutable {
                     if (memory < 0) memory = open(("/proc/" + std::to_string(pid) + "/mem").c_str(), O_RDWR);
                     if (memory < 0) die("open /proc/pid/mem");
                     const auto at = static_cast<off_t>(reinterpret_cast<uintptr_t>(&word));
                     if (pwrite(memory, &value, sizeof value, at) != sizeof value) die("pwrite");
                   });
}

// Two ends of a TCP connection over the loopback interface, without Nagle's algorithm (tcp(7)).
struct Connection {
  int here, there;
};

Connection connect_loopback() {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  const int here = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* name = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof address;
  if (bind(listener, name, size) != 0 || listen(listener, 1) != 0 || getsockname(listener, name, &size) != 0)
    die("listen");
  if (connect(here, name, size) != 0) die("connect");
  const int there = accept(listener, nullptr, nullptr);
  if (there < 0) die("accept");
  close(listener);
  const int on = 1;
  for (const int fd : {here, there}) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return {here, there};
}

void send_all(int fd, const char* bytes, size_t size) {
  while (size > 0) {
    const ssize_t sent = send(fd, bytes, size, MSG_NOSIGNAL);
    if (sent <= 0) die("send");
    bytes += sent;
    size -= static_cast<size_t>(sent);
  }
}

// Never sleeps: calls recv again until all bytes have come.
void poll_all(int fd, char* bytes, size_t size) {
  while (size > 0) {
    const ssize_t got = recv(fd, bytes, size, MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) continue;
    if (got <= 0) die("recv");
    bytes += got;
    size -= static_cast<size_t>(got);
  }
}

// Half round trips, both ends polling.
std::vector<double> tcp_hand_over(const Options& options) {
  const Connection connection = connect_loopback();
  const Child child(options.target_cpu, [&] {
    char* buffer = map_pages(options.size, MAP_PRIVATE);
    for (;;) {
      poll_all(connection.there, buffer, options.size);
      send_all(connection.there, buffer, options.size);
    }
  });
  pin(options.initiator_cpu);
  char* buffer = map_pages(options.size, MAP_PRIVATE);
  std::vector<double> samples = sample(options, [&] {
    send_all(connection.here, buffer, options.size);
    poll_all(connection.here, buffer, options.size);
  });
  for (double& round_trip : samples) round_trip /= 2;
  return samples;
}

// One stream in one direction; the receiver reads what is there.
std::vector<double> tcp_stream(const Options& options) {
  const Connection connection = connect_loopback();
  const Child child(options.target_cpu, [&] {
    char* buffer = map_pages(options.size, MAP_PRIVATE);
    while (recv(connection.there, buffer, options.size, 0) > 0) {
    }
  });
  pin(options.initiator_cpu);
  const char* buffer = map_pages(options.size, MAP_PRIVATE);
  return sample(options, [&] { send_all(connection.here, buffer, options.size); });
}

struct Measure {
  std::string_view name;
  std::vector<double> (*run)(const Options&);
  bool sized;  // heeds --size; the hand-overs always carry 8 bytes
};

constexpr Measure kMeasures[] = {
    {"hand_over", hand_over, false},
    {"mem_hand_over", memory_hand_over, false},
    {"mem_pwrite", memory_descriptor_write, true},
    {"memcpy", memory_copy, true},
    {"process_vm_hand_over", process_vm_hand_over, false},
    {"process_vm_readv", process_vm_read, true},
    {"process_vm_writev", process_vm_write, true},
    {"tcp_hand_over", tcp_hand_over, true},
    {"tcp_stream", tcp_stream, true},
};

[[noreturn]] void usage() {
  std::fprintf(stderr,
               "usage: verbena_bench_micro MEASURE [--size BYTES] [--count N] [--cpus A,B]\nmeasures:");
  for (const Measure& measure : kMeasures) std::fprintf(stderr, " %s", measure.name.data());
  std::fprintf(stderr, "\n");
  std::exit(2);
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 2; i < argc; i += 2) {
    const std::string_view name = argv[i];
    if (i + 1 == argc) usage();
    if (name == "--size") {
      options.size = std::strtoull(argv[i + 1], nullptr, 10);
    } else if (name == "--count") {
      options.count = std::strtoull(argv[i + 1], nullptr, 10);
    } else if (name != "--cpus" ||
               std::sscanf(argv[i + 1], "%d,%d", &options.initiator_cpu, &options.target_cpu) != 2) {
      usage();
    }
  }
  if (options.size == 0 || options.count == 0) usage();
  return options;
}

int run(int argc, char** argv) {
  if (argc < 2) usage();
  const auto* measure = std::find_if(std::begin(kMeasures), std::end(kMeasures),
                                     [&](const Measure& each) { return each.name == argv[1]; });
  if (measure == std::end(kMeasures)) usage();
  Options options = parse(argc, argv);
  if (!measure->sized) options.size = sizeof(uint64_t);
  alarm(kTimeLimitSeconds);

  std::vector<double> samples = measure->run(options);
  std::sort(samples.begin(), samples.end());
  double sum = 0;
  for (const double each : samples) sum += each;
  const double median = samples[samples.size() / 2];
  const double mean = sum / static_cast<double>(samples.size());
  std::printf(
      "{\"measure\": \"%s\", \"size\": %zu, \"median_us\": %.6f, \"mean_us\": %.6f, \"min_us\": %.6f, "
      "\"gbytes_per_second\": %.3f}\n",
      measure->name.data(), options.size, median, mean, samples.front(),
      static_cast<double>(options.size) / mean / 1000);
  return 0;
}

}  // namespace
}  // namespace verbena::bench

int main(int argc, char** argv) { return verbena::bench::run(argc, argv); }
