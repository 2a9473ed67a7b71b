// SPDX-License-Identifier: BSD-2-Clause
//
// Keeps errno as it was. Posting, polling and requesting notification do not change errno: ibv_post_send(3)
// and its like return the error, and drivers set no errno there. Programs rely on it: librdmacm's
// rs_process_cq() posts between the call that sets errno and the look at it.
//
// The fast paths make no system call. Each of these holds one of these guards:
// - the paths behind the fast ones,
// - the functions of PeerAdapter that make a system call, which fast paths call as well.
#pragma once

#include <errno.h>

namespace verbena {

class KeepErrno {
 public:
  KeepErrno() : before_(errno) {}
  KeepErrno(const KeepErrno&) = delete;
  KeepErrno& operator=(const KeepErrno&) = delete;
  ~KeepErrno() { errno = before_; }

 private:
  const int before_;
};

}  // namespace verbena
