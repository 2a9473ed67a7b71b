// SPDX-License-Identifier: BSD-2-Clause
//
// The kernel's rdma_cm, for ids on devices of the machine that are seen beside the node's (`verbena run
// --beside`).
//
// - An id goes to the kernel when it is bound to an address that a device of the machine has (in its GID
//   tables), or when it resolves an address that the machine's route reaches from such an address. All
//   other ids are Verbena's.
// - An id that listens at a wildcard listens at both, at the same port.
// - Commands on an id of the kernel are forwarded to one descriptor of /dev/infiniband/rdma_cm for the
//   whole process, with the kernel's number in place of ours. Their responses come from the kernel,
//   straight into the program's memory.
// - A thread fetches the kernel's events and queues them at the file of the id, as the connection
//   manager's are.
//
// The kernel knows an id by the uid "our number + 1", and a membership in a group by its number and a mark; the
// program never sees either.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

namespace verbena::rdma_cm {

struct Call;
struct Context;
struct Multicast;
struct State;

class Machine {
 public:
  // nullptr: the machine's devices are not seen here. Throws std::bad_alloc.
  static std::unique_ptr<Machine> make();
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  // Carries out the command if it is for the kernel; *error is then its result. False: it is Verbena's.
  // `request` is a copy of `size` bytes, which may be changed.
  bool carry_out(Call& call, uint32_t command, void* request, size_t size, int* error);

  // The id listens at a wildcard here: it listens at the machine's devices as well. An errno value.
  int listen_as_well(State& state, Context& context, const sockaddr_storage& local, uint32_t backlog);

  // An id of the kernel joins the group of `multicast`, and leaves it. A membership that has been joined is
  // in State::multicasts, for its events; after it has been left none of them is queued any more. Not under
  // the state's mutex. join(): an errno value.
  int join(State& state, Multicast& multicast, bool send_only);
  void leave(const Multicast& multicast);

  // Destroys the id of the kernel. Afterwards none of its events is queued any more. Not under the
  // state's mutex.
  void destroy(uint32_t id);

 private:
  Machine() = default;
  int open();
  int command(uint32_t number, const void* request, size_t size, size_t room) const;
  int adopt(State& state, Context& context);
  void read_events();

  std::mutex open_mutex_;
  int fd_ = -1;
  std::mutex events_mutex_;  // held while an event is fetched and queued
};

}  // namespace verbena::rdma_cm
