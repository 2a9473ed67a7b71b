// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/fork_descriptors.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fabric/descriptor.h"
#include "unit/common/child.h"

namespace verbena {
namespace {

int child_has(int fd) {
  Child child([fd](const Child&) {
    close_parent_descriptors();
    return fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
  });
  return child.finish();
}

TEST(ForkDescriptors, AChildHasNoneThatIsKeptFromIt) {
  const Descriptor kept(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(child_has(kept.fd), 1);
  keep_from_children(kept.fd);
  EXPECT_EQ(child_has(kept.fd), 0);
  no_longer_keep(kept.fd);
  EXPECT_EQ(child_has(kept.fd), 1);
}

// The program has closed our descriptor, and has opened a file that got its number.
TEST(ForkDescriptors, AnotherFileOfTheSameNumberStays) {
  const Descriptor kept(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const Descriptor null(open("/dev/null", O_RDWR | O_CLOEXEC));
  keep_from_children(kept.fd);
  ASSERT_EQ(dup2(null.fd, kept.fd), kept.fd);
  EXPECT_EQ(child_has(kept.fd), 1);
  no_longer_keep(kept.fd);
}

}  // namespace
}  // namespace verbena
