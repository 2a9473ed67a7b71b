// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/xrc_domains.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>

#include "fabric/descriptor.h"
#include "unit/common/scoped_membership.h"
#include "unit/common/temporary_node.h"

namespace verbena {
namespace {

// A word of shared memory may have any value: what is in use is neither lost nor given to another process.
TEST(XrcDomains, OfAFileIsFoundWhateverTheNumberOfUsedOnesSays) {
  const TemporaryNode node;
  const ScopedMembership member(node.path());
  ASSERT_EQ(member.error, 0);
  const NodeDirectory& directory = node.directory();
  const Descriptor file(open((node.folder() + "/domain").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  const auto open_domain = [&](int flags, uint32_t* entry, uint32_t* number) {
    return open_xrc_domain(directory, member.membership.slot(), member.membership.generation(), 0, file.fd,
                           flags, entry, number);
  };
  uint32_t first = 0, second = 0, number = 0, same = 0;
  ASSERT_EQ(open_domain(O_CREAT | O_EXCL, &first, &number), 0);
  directory.header().xrc_domains_used.store(0);
  EXPECT_EQ(open_domain(O_CREAT | O_EXCL, &second, &same), EINVAL);
  ASSERT_EQ(open_domain(O_CREAT, &second, &same), 0);
  EXPECT_EQ(same, number);
  EXPECT_NE(first, second);
  EXPECT_EQ(directory.header().xrc_domains_used.load(), 2u);
}

}  // namespace
}  // namespace verbena
