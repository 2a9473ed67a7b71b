// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/fifo.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "unit/common/temporary_folder.h"

namespace verbena {
namespace {

class Fifo : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = folder_ + "/f";
    ASSERT_EQ(end_.make(AT_FDCWD, path_.c_str()), 0);
  }
  // A file under the descriptor's number: the program closed what it does not own and opened a file of its
  // own.
  std::string replace_descriptor() const {
    const std::string file = folder_ + "/file";
    const int fd = open(file.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    EXPECT_EQ(dup3(fd, end_.fd(), O_CLOEXEC), end_.fd());
    close(fd);
    return file;
  }

  const TemporaryFolder temporary_;
  std::string folder_ = temporary_.path(), path_;
  FifoEnd end_;
};

TEST_F(Fifo, CarriesARecord) {
  uint64_t record = 42, read = 0;
  ASSERT_EQ(end_.write(&record, sizeof record), 0);
  ASSERT_TRUE(end_.read(&read, sizeof read));
  EXPECT_EQ(read, 42u);
}

TEST_F(Fifo, IsEmptyAtFirst) {
  uint64_t record;
  EXPECT_FALSE(end_.read(&record, sizeof record));
}

TEST_F(Fifo, IsMadeOnce) { EXPECT_EQ(FifoEnd().make(AT_FDCWD, path_.c_str()), EEXIST); }

TEST_F(Fifo, IsNotOpenedWhereNoneIs) { EXPECT_EQ(FifoEnd().open(AT_FDCWD, (folder_ + "/none").c_str()), ENOENT); }

TEST_F(Fifo, IsNotOpenedWhereAFileIs) {
  close(open((folder_ + "/file").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  EXPECT_EQ(FifoEnd().open(AT_FDCWD, (folder_ + "/file").c_str()), EPROTO);
}

TEST_F(Fifo, IsNotOpenedThroughALink) {
  std::filesystem::create_symlink(path_, folder_ + "/link");
  EXPECT_EQ(FifoEnd().open(AT_FDCWD, (folder_ + "/link").c_str()), ELOOP);
}

TEST_F(Fifo, SaysWhenItIsFull) {
  const uint64_t record = 1;
  int error = 0;
  size_t count = 0;
  while ((error = end_.write(&record, sizeof record)) == 0 && count < 100000) ++count;
  EXPECT_EQ(error, EAGAIN);
  EXPECT_GE(count, 512u);  // a page of them, even for a user with many pipes (pipe(7))
}

TEST_F(Fifo, NeverWritesIntoAFileThatTookItsDescriptor) {
  const std::string file = replace_descriptor();
  const uint64_t record = 42;
  EXPECT_EQ(end_.write(&record, sizeof record), EBADF);
  EXPECT_EQ(std::filesystem::file_size(file), 0u);
}

TEST_F(Fifo, NeverReadsFromAFileThatTookItsDescriptor) {
  const std::string file = replace_descriptor();
  ASSERT_EQ(truncate(file.c_str(), 8), 0);
  uint64_t record;
  EXPECT_FALSE(end_.read(&record, sizeof record));
}

TEST_F(Fifo, NeverClosesADescriptorThatIsNotItsOwnAnyMore) {
  const int fd = end_.fd();
  replace_descriptor();
  end_.close();
  EXPECT_GE(fcntl(fd, F_GETFD), 0);
  close(fd);
}

TEST_F(Fifo, SaysSoWhenItsDescriptorIsClosed) {
  close(end_.fd());
  const uint64_t record = 42;
  EXPECT_EQ(end_.write(&record, sizeof record), EBADF);
}

TEST_F(Fifo, NeverWritesIntoAnotherPipe) {
  FifoEnd other;
  ASSERT_EQ(other.make(AT_FDCWD, (folder_ + "/g").c_str()), 0);
  ASSERT_EQ(dup3(other.fd(), end_.fd(), O_CLOEXEC), end_.fd());
  const uint64_t record = 42;
  EXPECT_EQ(end_.write(&record, sizeof record), EBADF);
  close(end_.fd());
}

TEST_F(Fifo, HasAReaderThatBlocks) {
  const int reader = end_.open_reader(path_);
  ASSERT_GE(reader, 0);
  EXPECT_EQ(fcntl(reader, F_GETFL) & O_NONBLOCK, 0);
  EXPECT_NE(fcntl(reader, F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_TRUE(end_.is_same_pipe(reader));
  pollfd readable{reader, POLLIN, 0};
  EXPECT_EQ(poll(&readable, 1, 0), 0);
  close(reader);
}

TEST_F(Fifo, MovesWithItsDescriptor) {
  FifoEnd moved = std::move(end_);
  const uint64_t record = 42;
  EXPECT_TRUE(moved.is_open());
  EXPECT_EQ(moved.write(&record, sizeof record), 0);
}

}  // namespace
}  // namespace verbena
