// SPDX-License-Identifier: BSD-2-Clause
//
// verbena doctor. The tree of the command has no provider, so "good" is never the overall result here; each
// test checks its own finding.
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "command_under_test.h"
#include "tool/elf_file.h"

namespace verbena::test {
namespace {

namespace fs = std::filesystem;

class DoctorCommand : public CommandTest {
 protected:
  // The line of the report about `where`; "" when there is none.
  std::string finding(const std::string& where, const std::string& program = "") {
    std::vector<std::string> words = {"doctor"};
    if (!program.empty()) words.push_back(program);
    outcome_ = verbena(words);
    const size_t at = outcome_.out.find("  " + where + ": ");
    if (at == std::string::npos) return "";
    const size_t from = outcome_.out.rfind('\n', at) + 1;
    return outcome_.out.substr(from, outcome_.out.find('\n', at) - from);
  }
  std::string copy_of(const std::string& program, const std::string& name) const {
    const std::string path = folder_ + "/" + name;
    fs::copy_file(program, path);
    return path;
  }
  static bool bad(const std::string& line) { return line.rfind("BAD ", 0) == 0; }
  static bool good(const std::string& line) { return line.rfind("good", 0) == 0; }

  Outcome outcome_;
};

TEST_F(DoctorCommand, FindsADynamicProgramGood) {
  EXPECT_TRUE(good(finding("/usr/bin/env", "/usr/bin/env"))) << outcome_.out;
}

TEST_F(DoctorCommand, TellsAProgramWithoutVerbs) {
  finding("/usr/bin/env", "/usr/bin/env");
  EXPECT_NE(outcome_.out.find("note  /usr/bin/env: uses no verbs"), std::string::npos) << outcome_.out;
}

TEST_F(DoctorCommand, TellsAProgramWithVerbs) {
  finding("ibv_devinfo", "ibv_devinfo");
  EXPECT_NE(outcome_.out.find("ibv_devinfo: uses libibverbs.so"), std::string::npos) << outcome_.out;
  EXPECT_EQ(outcome_.out.find("uses no verbs"), std::string::npos) << outcome_.out;
}

// The words that a program prints that was started without `verbena run` lead to the remedy.
TEST_F(DoctorCommand, QuotesTheFirstErrorWithoutRun) {
  const std::string line = finding("VERBENA_NODE");
  for (const char* said :
       {"Function not implemented", "No IB devices found", "No RDMA devices were detected"})
    EXPECT_NE(line.find(said), std::string::npos) << outcome_.out;
  EXPECT_NE(outcome_.out.find("remedy: verbena run -- PROGRAM"), std::string::npos) << outcome_.out;
}

TEST_F(DoctorCommand, LooksForProgramsInThePath) {
  EXPECT_TRUE(good(finding("/usr/bin/env", "env"))) << outcome_.out;
}

TEST_F(DoctorCommand, TellsAStaticProgram) {
  const std::string line = finding(VERBENA_STATIC_PROGRAM, VERBENA_STATIC_PROGRAM);
  EXPECT_TRUE(bad(line)) << outcome_.out;
  EXPECT_NE(line.find("statically"), std::string::npos) << line;
  EXPECT_TRUE(outcome_.exited_with(1));
}

// It needs the symbol version IBVERBS_9.9.
TEST_F(DoctorCommand, TellsAProgramForANewerLibrary) {
  const std::string path = VERBENA_FUTURE_PROGRAM;
  finding(path, path);
  EXPECT_NE(outcome_.out.find("BAD   " + path + ": needs the symbol version IBVERBS_9.9, and "),
            std::string::npos)
      << outcome_.out;
  EXPECT_NE(outcome_.out.find("libibverbs.so.1 has no newer one than IBVERBS_1."), std::string::npos)
      << outcome_.out;
  EXPECT_NE(outcome_.out.find("first in LD_LIBRARY_PATH, or build the program on this machine"),
            std::string::npos)
      << outcome_.out;
  EXPECT_TRUE(outcome_.exited_with(1));
}

TEST_F(DoctorCommand, TellsASetUserIdProgram) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make a program somebody else's";
  const std::string path = copy_of("/usr/bin/env", "suid");
  ASSERT_EQ(chown(path.c_str(), 12345, 0), 0);
  ASSERT_EQ(chmod(path.c_str(), 04755), 0);
  const std::string line = finding(path, path);
  EXPECT_TRUE(bad(line)) << outcome_.out;
  EXPECT_NE(line.find("set-user-ID"), std::string::npos) << line;
}

TEST_F(DoctorCommand, TellsASetGroupIdProgram) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make a program another group's";
  const std::string path = copy_of("/usr/bin/env", "sgid");
  ASSERT_EQ(chown(path.c_str(), 0, 12345), 0);
  ASSERT_EQ(chmod(path.c_str(), 02755), 0);
  const std::string line = finding(path, path);
  EXPECT_TRUE(bad(line)) << outcome_.out;
  EXPECT_NE(line.find("set-group-ID"), std::string::npos) << line;
}

TEST_F(DoctorCommand, TellsAnotherArchitecture) {
  const std::string path = copy_of("/usr/bin/env", "foreign");
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(18);  // e_machine
    file.put(0x2b);  // SPARC V9
  }
  ASSERT_EQ(chmod(path.c_str(), 0755), 0);
  const std::string line = finding(path, path);
  EXPECT_TRUE(bad(line)) << outcome_.out;
  EXPECT_NE(line.find("is for machine 43"), std::string::npos) << line;
}

TEST_F(DoctorCommand, TellsThirtyTwoBits) {
  const std::string path = copy_of("/usr/bin/env", "narrow");
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4);  // EI_CLASS
    file.put(1);
  }
  EXPECT_NE(finding(path, path).find("32 bits"), std::string::npos) << outcome_.out;
}

TEST_F(DoctorCommand, TellsAMissingProgram) {
  EXPECT_TRUE(bad(finding("no-such-program", "no-such-program")));
}

TEST_F(DoctorCommand, TellsAFileThatIsNotExecutable) {
  EXPECT_TRUE(bad(finding("/etc/passwd", "/etc/passwd")));
}

TEST_F(DoctorCommand, FollowsAScriptToItsInterpreter) {
  const std::string path = folder_ + "/script";
  std::ofstream(path) << "#! /usr/bin/env sh\ntrue\n";
  ASSERT_EQ(chmod(path.c_str(), 0755), 0);
  EXPECT_TRUE(good(finding("/usr/bin/env", path))) << outcome_.out;
}

TEST_F(DoctorCommand, TellsAScriptWithoutAFirstLine) {
  const std::string path = folder_ + "/script";
  std::ofstream(path) << "true\n";
  ASSERT_EQ(chmod(path.c_str(), 0755), 0);
  EXPECT_TRUE(bad(finding(path, path))) << outcome_.out;
}

TEST_F(DoctorCommand, SurvivesADamagedProgram) {
  const std::string path = copy_of("/usr/bin/env", "damaged");
  fs::resize_file(path, 100);
  finding(path, path);
  EXPECT_TRUE(outcome_.exited_with(1)) << outcome_.out;
}

TEST_F(DoctorCommand, LetsAnAdapterLive) {
  EXPECT_TRUE(good(finding(folder_ + "/verbena-" + std::to_string(geteuid())))) << outcome_.out;
}

TEST_F(DoctorCommand, ReachesIntoAnotherProcess) {
  EXPECT_TRUE(good(finding("memory of another process"))) << outcome_.out;
}

TEST_F(DoctorCommand, MissesTheDead) { EXPECT_TRUE(good(finding("robust locks"))) << outcome_.out; }

TEST_F(DoctorCommand, LeavesNoNodeBehind) {
  finding("x");
  EXPECT_TRUE(fs::is_empty(folder_ + "/verbena-" + std::to_string(geteuid())));
}

TEST_F(DoctorCommand, TellsAFolderOpenToOthers) {
  environment_["XDG_RUNTIME_DIR"] = folder_;
  const std::string nodes = folder_ + "/verbena";
  ASSERT_EQ(mkdir(nodes.c_str(), 0700), 0);
  ASSERT_EQ(chmod(nodes.c_str(), 0755), 0);
  EXPECT_NE(finding("node").find("mode 0755"), std::string::npos) << outcome_.out;
}

TEST_F(DoctorCommand, TellsAMissingProvider) {
  finding("x");
  EXPECT_NE(outcome_.out.find("wants providers of ABI"), std::string::npos) << outcome_.out;
}

TEST_F(DoctorCommand, TellsASysfsPath) {
  environment_["SYSFS_PATH"] = "/nowhere";
  EXPECT_TRUE(bad(finding("SYSFS_PATH"))) << outcome_.out;
}

TEST_F(DoctorCommand, TellsTooFewDescriptors) {
  const Outcome outcome =
      run({"/bin/sh", "-c", "ulimit -n 20; exec " VERBENA_COMMAND " doctor"}, environment_);
  EXPECT_NE(outcome.out.find("BAD   RLIMIT_NOFILE"), std::string::npos) << outcome.out;
}

TEST_F(DoctorCommand, MentionsThatDescriptorsAreForFewPeers) {
  const Outcome outcome =
      run({"/bin/sh", "-c", "ulimit -n 500; exec " VERBENA_COMMAND " doctor"}, environment_);
  EXPECT_NE(outcome.out.find("note  RLIMIT_NOFILE: 500 descriptors"), std::string::npos) << outcome.out;
}

TEST_F(DoctorCommand, MentionsALimitOfTheAddressSpace) {
#ifdef VERBENA_SANITIZER_RUNTIME
  GTEST_SKIP() << "a sanitizer's shadow takes more than any limit leaves";
#endif
  const Outcome outcome =  // 64 GiB
      run({"/bin/sh", "-c", "ulimit -v 67108864; exec " VERBENA_COMMAND " doctor"}, environment_);
  EXPECT_NE(outcome.out.find("note  RLIMIT_AS: the address space is limited"), std::string::npos)
      << outcome.out;
  EXPECT_NE(outcome.out.find("remedy: ulimit -v unlimited"), std::string::npos) << outcome.out;
}

TEST_F(DoctorCommand, TellsALimitOfTheFileSize) {
  const Outcome outcome =
      run({"/bin/sh", "-c", "ulimit -f 100; exec " VERBENA_COMMAND " doctor"}, environment_);
  EXPECT_TRUE(outcome.exited_with(1));
  EXPECT_NE(outcome.out.find("BAD   shared memory"), std::string::npos) << outcome.out;
}

TEST_F(DoctorCommand, GivesARemedyForEverythingBad) {
  finding("x", VERBENA_STATIC_PROGRAM);
  const std::string report = "\n" + outcome_.out;
  for (size_t at = report.find("\nBAD "); at != std::string::npos; at = report.find("\nBAD ", at + 1)) {
    const size_t next = report.find('\n', at + 1) + 1;
    EXPECT_EQ(report.compare(next, 14, "      remedy: "), 0) << report.substr(at, next - at);
  }
}

TEST(ElfFile, IsNotEveryFile) {
  tool::ElfFile elf;
  EXPECT_EQ(tool::read_elf("/etc/passwd", &elf), ENOEXEC);
  EXPECT_EQ(tool::read_elf("/no/such/file", &elf), ENOENT);
}

TEST(ElfFile, SurvivesEveryTruncation) {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  std::string start(512, 0);
  file.read(start.data(), static_cast<std::streamsize>(start.size()));
  char name[] = "/tmp/verbena-elf-XXXXXX";
  const int fd = mkstemp(name);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(write(fd, start.data(), start.size()), static_cast<ssize_t>(start.size()));
  for (off_t size = 511; size >= 0; --size) {
    ASSERT_EQ(ftruncate(fd, size), 0);
    tool::ElfFile elf;
    tool::read_elf(name, &elf);
  }
  close(fd);
  unlink(name);
}

}  // namespace
}  // namespace verbena::test
