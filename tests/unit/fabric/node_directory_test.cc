// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/node_directory.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>

#include <set>

#include "unit/common/child.h"
#include "unit/common/temporary_node.h"

namespace verbena {
namespace {

class Directory : public ::testing::Test {
 protected:
  const NodeDirectory& directory() const { return node_.directory(); }
  std::string path() const { return directory_path(node_.path()); }
  int reopen() const { return NodeDirectory().open(path().c_str()); }
  void overwrite(off_t at, const void* bytes, size_t size) const {
    const int fd = open(path().c_str(), O_WRONLY | O_CLOEXEC);
    ASSERT_EQ(pwrite(fd, bytes, size, at), static_cast<ssize_t>(size));
    close(fd);
  }
  void overwrite_word(off_t at, uint32_t word) const { overwrite(at, &word, sizeof word); }

  TemporaryNode node_;
};

TEST_F(Directory, IsOpenedByAnybody) { EXPECT_EQ(reopen(), 0); }

TEST_F(Directory, IsNotMadeOverAnother) {
  EXPECT_EQ(NodeDirectory::create(path().c_str(), DeviceTable{}), EEXIST);
}

TEST_F(Directory, ThatIsNotThereIsNotOpened) {
  EXPECT_EQ(NodeDirectory().open("/nowhere/directory"), ENOENT);
}

TEST_F(Directory, WithoutItsMagicIsRefused) {
  overwrite_word(offsetof(DirectoryHeader, magic), 0);
  EXPECT_EQ(reopen(), EPROTO);
}

TEST_F(Directory, OfAnotherVersionIsRefused) {
  overwrite_word(offsetof(DirectoryHeader, layout_version), kLayoutVersion + 1);
  EXPECT_EQ(reopen(), EPROTO);
}

TEST_F(Directory, WithMoreDevicesThanThereCanBeIsRefused) {
  overwrite_word(offsetof(DirectoryHeader, devices), kMaxDevices + 1);
  EXPECT_EQ(reopen(), EPROTO);
}

TEST_F(Directory, ThatIsCutOffIsRefused) {
  const auto size = std::filesystem::file_size(path());
  std::filesystem::resize_file(path(), size - 4096);
  EXPECT_EQ(reopen(), EPROTO);
  std::filesystem::resize_file(path(), size);  // others have it mapped
}

TEST_F(Directory, BehindALinkIsRefused) {
  const std::string link = node_.folder() + "/link";
  std::filesystem::create_symlink(path(), link);
  EXPECT_EQ(NodeDirectory().open(link.c_str()), ELOOP);
}

TEST_F(Directory, GivesEachQpANumberOfItsOwn) {
  std::set<uint32_t> numbers;
  for (uint32_t i = 0; i < 20000; ++i) ASSERT_TRUE(numbers.insert(directory().claim_qpn(1, i)).second);
}

TEST_F(Directory, FindsTheOwnerOfANumber) {
  const uint32_t qpn = directory().claim_qpn(17, 4711);
  QpnEntry found;
  ASSERT_TRUE(directory().find_qpn(qpn, &found));
  EXPECT_EQ(found.slot, 17u);
  EXPECT_EQ(found.qp_index, 4711u);
}

TEST_F(Directory, DoesNotFindAQpThatNoProcessCanHave) {  // the entry was damaged
  QpnEntry found;
  EXPECT_TRUE(directory().find_qpn(directory().claim_qpn(17, kMaxQpsPerProcess - 1), &found));
  EXPECT_FALSE(directory().find_qpn(directory().claim_qpn(17, kMaxQpsPerProcess), &found));
  EXPECT_FALSE(directory().find_qpn(directory().claim_srqn(17, 1), &found));
}

TEST_F(Directory, DoesNotFindANumberGivenBack) {
  const uint32_t qpn = directory().claim_qpn(17, 1);
  directory().release_qpn(qpn, 17);
  QpnEntry found;
  EXPECT_FALSE(directory().find_qpn(qpn, &found));
}

TEST_F(Directory, LetsOnlyTheHolderGiveANumberBack) {
  const uint32_t qpn = directory().claim_qpn(17, 1);
  directory().release_qpn(qpn, 18);
  QpnEntry found;
  EXPECT_TRUE(directory().find_qpn(qpn, &found));
}

TEST_F(Directory, TakesASlotsNumbersBackAllAtOnce) {
  const uint32_t mine = directory().claim_qpn(1, 1);
  const uint32_t others = directory().claim_qpn(2, 1);
  directory().release_all_qpns(1);
  QpnEntry found;
  EXPECT_FALSE(directory().find_qpn(mine, &found));
  EXPECT_TRUE(directory().find_qpn(others, &found));
}

TEST_F(Directory, GivesANumberAgainAsLateAsCanBe) {
  std::set<uint32_t> numbers;
  for (int i = 0; i < 100000; ++i) {
    const uint32_t qpn = directory().claim_qpn(1, 1);
    ASSERT_TRUE(numbers.insert(qpn).second) << "again after " << i;
    directory().release_qpn(qpn, 1);
  }
}

TEST_F(Directory, NeverGivesTheSpecialNumbersNorThatOfMulticast) {
  for (const uint32_t turn : {0xfffff0u, 0xffff'fff0u}) {
    directory().header().next_qpn.store(turn);
    for (int i = 0; i < 40; ++i) {
      const uint32_t qpn = directory().claim_qpn(1, 1);
      EXPECT_GE(qpn, 2u);
      EXPECT_LE(qpn, 0xfffffeu);
    }
    directory().release_all_qpns(1);
  }
}

TEST_F(Directory, SaysWhenItHasNoNumberLeft) {
  uint32_t given = 0;
  while (given <= kQpnTableSize && directory().claim_qpn(1, given) != 0) ++given;
  EXPECT_LE(given, kQpnTableSize);
  EXPECT_GT(given, kQpnTableSize - 4);
}

// ---- liveness: a child takes slot 5, generation 3, as an adapter does ----

class Liveness : public Directory {
 protected:
  static constexpr uint32_t kSlot = 5, kGeneration = 3;
  // `lock`: the thread's, as long as it lives there.
  static void live(const NodeDirectory& directory, RobustLock& lock) {
    Slot& slot = directory.slot(kSlot);
    lock.try_lock(slot.life);
    directory.note_holder(kSlot);
    slot.generation.store(kGeneration);
    slot.state.store(SlotState::kLive);
  }
  bool alive(uint32_t generation = kGeneration) const { return directory().alive(kSlot, generation); }
};

TEST_F(Liveness, NobodyIsAliveInAFreshDirectory) {
  EXPECT_FALSE(alive(0));
  EXPECT_FALSE(directory().occupied(kSlot));
}

TEST_F(Liveness, AProcessIsAliveInItsOwnGenerationOnly) {
  Child child([&](const Child& self) {
    RobustLock lock;
    live(directory(), lock);
    self.tell('l');
    return self.hear();
  });
  ASSERT_EQ(child.answer(), 'l');
  EXPECT_TRUE(alive());
  EXPECT_FALSE(alive(kGeneration - 1));
  EXPECT_TRUE(directory().occupied(kSlot));
}

TEST_F(Liveness, AStoppedProcessIsAlive) {
  Child child([&](const Child& self) {
    RobustLock lock;
    live(directory(), lock);
    self.tell('l');
    return self.hear();
  });
  ASSERT_EQ(child.answer(), 'l');
  child.stop();
  EXPECT_TRUE(alive());
}

TEST_F(Liveness, EndsWithTheProcess) {
  Child child([&](const Child&) -> int {
    RobustLock lock;
    live(directory(), lock);
    _exit(0);
  });
  ASSERT_EQ(child.finish(), 0);
  EXPECT_FALSE(alive());
  EXPECT_FALSE(directory().occupied(kSlot));
}

TEST_F(Liveness, EndsWithSigkill) {
  Child child([&](const Child& self) {
    RobustLock lock;
    live(directory(), lock);
    self.tell('l');
    return self.hear();
  });
  ASSERT_EQ(child.answer(), 'l');
  child.kill_now();
  EXPECT_FALSE(alive());
}

TEST_F(Liveness, EndsWithExec) {
  Child child([&](const Child& self) {
    RobustLock lock;
    live(directory(), lock);
    self.tell('l');
    self.hear();
    execl("/bin/sleep", "sleep", "40", nullptr);
    return 1;
  });
  ASSERT_EQ(child.answer(), 'l');
  ASSERT_TRUE(alive());
  child.command('e');
  EXPECT_TRUE(eventually([&] { return !alive(); }));
}

}  // namespace
}  // namespace verbena
