// SPDX-License-Identifier: BSD-2-Clause
#include "rdma_cm/open.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <new>

#include "no_cancellation.h"
#include "rdma_cm/call.h"
#include "rdma_cm/commands.h"

namespace verbena::rdma_cm {

verbena_boundary_find_fn find_descriptor = nullptr;

namespace {

uint64_t handle_of(void* owner) { return static_cast<uint64_t>(reinterpret_cast<uintptr_t>(owner)); }
void* owner_of(uint64_t handle) { return reinterpret_cast<void*>(static_cast<uintptr_t>(handle)); }

std::shared_ptr<File> find_file(State& state, uint64_t handle) {
  const std::lock_guard lock(state.mutex);
  const auto found = state.files.find(handle);
  return found != state.files.end() ? found->second : nullptr;
}

ssize_t answer(void* owner, const void* command, size_t length, bool has_token) {
  const NoCancellation guard;
  State* state = current_state();
  const std::shared_ptr<File> file = state != nullptr ? find_file(*state, handle_of(owner)) : nullptr;
  const int error = file != nullptr ? run_command(*state, file, command, length, has_token) : EBADF;
  if (error == 0) return static_cast<ssize_t>(length);
  if (error == kAskForToken) return VERBENA_BOUNDARY_WAIT;
  errno = error;
  return -1;
}

ssize_t answer_write(void* owner, const void* command, size_t length) {
  return answer(owner, command, length, false);
}

ssize_t answer_resumed(void* owner, const void* command, size_t length) {
  return answer(owner, command, length, true);
}

// The program has closed its last descriptor. Called in the service's thread.
void file_is_gone(void* owner) {
  if (State* state = current_state(); state != nullptr) close_file(*state, handle_of(owner));
}

int make_file(State& state, int flags, int* fd, uint64_t* handle) {
  auto file = std::make_shared<File>();
  file->read_only = (flags & O_ACCMODE) == O_RDONLY;
  {
    const std::lock_guard lock(state.mutex);
    file->handle = *handle = state.next_serial++;
    state.files.emplace(file->handle, file);
  }
  int error = file->tokens.make(flags, fd);
  if (error == 0) {
    error = cm::watch_pipe(state.service, file->tokens.write_end(), file_is_gone, owner_of(file->handle));
    if (error == 0) return 0;
    close(*fd);
  }
  close_file(state, *handle);
  return error;
}

}  // namespace

int open_device(int flags, verbena_boundary_handler* handler) {
  const NoCancellation guard;
  int error = 0;
  int fd = -1;
  uint64_t handle = 0;
  try {
    State* state = make_state(&error);
    if (state != nullptr) error = make_file(*state, flags, &fd, &handle);
  } catch (const std::bad_alloc&) {
    error = ENOMEM;
  }
  if (error != 0) {
    errno = error;
    return -1;
  }
  *handler = {.write = answer_write, .owner = owner_of(handle), .control = nullptr, .resume = answer_resumed};
  return fd;
}

int file_of_descriptor(State& state, int fd, std::shared_ptr<File>* out) {
  if (fcntl(fd, F_GETFD) < 0) return ENOENT;
  const auto find =
      find_descriptor != nullptr
          ? find_descriptor
          : reinterpret_cast<verbena_boundary_find_fn>(dlsym(RTLD_DEFAULT, "verbena_boundary_find"));
  verbena_boundary_handler handler = {
      .write = nullptr, .owner = nullptr, .control = nullptr, .resume = nullptr};
  if (find == nullptr || find(fd, &handler) != 0 || handler.write != answer_write) return EINVAL;
  *out = find_file(state, handle_of(handler.owner));
  return *out != nullptr ? 0 : EINVAL;
}

}  // namespace verbena::rdma_cm
