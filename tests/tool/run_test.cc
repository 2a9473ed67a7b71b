// SPDX-License-Identifier: BSD-2-Clause
//
// verbena run and env, from outside.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "command_under_test.h"

namespace verbena::test {
namespace {

namespace fs = std::filesystem;

const std::string kPreload =
    fs::path(VERBENA_COMMAND).parent_path().parent_path().string() + "/lib/verbena/libverbena-preload.so";
const std::string kDriver =
    fs::path(VERBENA_COMMAND).parent_path().parent_path().string() + "/lib/verbena/libverbena";

class RunCommand : public CommandTest {
 protected:
  // Preloads `library` into the command itself, too; a build with ASan needs an option for that.
  void preload(const std::string& library) {
    environment_["LD_PRELOAD"] = library;
    environment_["ASAN_OPTIONS"] = "verify_asan_link_order=0";
  }
};

TEST_F(RunCommand, SucceedsAsTheProgramDoes) { EXPECT_TRUE(verbena({"run", "--", "true"}).exited_with(0)); }

TEST_F(RunCommand, FailsAsTheProgramDoes) {
  EXPECT_TRUE(verbena({"run", "--", "sh", "-c", "exit 3"}).exited_with(3));
}

TEST_F(RunCommand, DiesAsTheProgramDoes) {
  EXPECT_TRUE(verbena({"run", "--", "sh", "-c", "kill -TERM $$"}).died_of(SIGTERM));
}

TEST_F(RunCommand, BecomesTheProgram) {
  const Outcome outcome = verbena({"run", "--", "sh", "-c", "echo $$"});
  EXPECT_EQ(outcome.out, std::to_string(outcome.pid) + "\n");
}

TEST_F(RunCommand, SaysNotFoundAsAShellDoes) {
  const Outcome outcome = verbena({"run", "--", "no-such-program"});
  EXPECT_TRUE(outcome.exited_with(127));
  EXPECT_EQ(outcome.err, "verbena: cannot run 'no-such-program': PATH has no such program\n");
}

TEST_F(RunCommand, SaysNotExecutableAsAShellDoes) {
  const Outcome outcome = verbena({"run", "--", "/etc/passwd"});
  EXPECT_TRUE(outcome.exited_with(126));
  EXPECT_EQ(
      outcome.err,
      "verbena: cannot run '/etc/passwd': it is not executable (chmod +x, or name the program that runs "
      "it)\n");
}

TEST_F(RunCommand, SaysWhyAFileCannotBeRun) {
  const Outcome folder = verbena({"run", "--", folder_});
  EXPECT_TRUE(folder.exited_with(126));
  EXPECT_EQ(folder.err, "verbena: cannot run '" + folder_ + "': it is a folder\n");
  const std::string script = folder_ + "/script";
  std::ofstream(script) << "#!/no/such/interpreter -x\n";
  fs::permissions(script, fs::perms::owner_all);
  const Outcome outcome = verbena({"run", "--", script});
  EXPECT_TRUE(outcome.exited_with(127));
  EXPECT_EQ(outcome.err,
            "verbena: cannot run '" + script + "': it is run by /no/such/interpreter, which is not there\n");
}

TEST_F(RunCommand, TellsThatASetUserIdProgramSeesNoDevice) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make a program somebody else's";
  const std::string path = folder_ + "/suid";
  fs::copy_file("/usr/bin/env", path);
  ASSERT_EQ(chown(path.c_str(), 12345, 0), 0);
  ASSERT_EQ(chmod(path.c_str(), 04755), 0);
  const Outcome outcome = verbena({"run", "--", path, "true"});
  EXPECT_TRUE(outcome.exited_with(0)) << outcome.err;
  EXPECT_EQ(
      outcome.err.rfind("verbena: " + path + " is set-user-ID, so that the loader ignores LD_PRELOAD", 0), 0u)
      << outcome.err;
  EXPECT_EQ(verbena({"run", "--", "true"}).err, "");
}

// One line, and the help that has more.
TEST_F(RunCommand, UsageIsToldByTheSubcommand) {
  const auto said = [&](const std::vector<std::string>& words) {
    const Outcome outcome = verbena(words);
    EXPECT_TRUE(outcome.exited_with(2)) << outcome.err;
    return outcome.err;
  };
  const std::string unknown = said({"runn", "--", "true"});
  EXPECT_EQ(unknown.rfind("verbena: there is no command 'runn'; there are run, check, env, ", 0), 0u)
      << unknown;
  EXPECT_EQ(unknown.find("probe"), std::string::npos) << unknown;
  EXPECT_EQ(said({}).rfind("verbena: which command? run, ", 0), 0u);
  EXPECT_EQ(said({"--node", "x", "run"}).rfind("verbena: there is no option '--node' before the command", 0),
            0u);
  EXPECT_EQ(said({"run", "--chaos", "-1", "--", "true"}),
            "verbena: --chaos: '-1' is no whole number, 0 or more (see verbena run --help)\n");
  EXPECT_EQ(said({"capture", "--seconds", "-1", "--", "true"}),
            "verbena: --seconds: '-1' is no number of seconds, 0 or more (see verbena capture --help)\n");
  EXPECT_EQ(said({"run", "--profile", "./none.toml", "--", "true"}),
            "verbena: ./none.toml: cannot be read: No such file or directory (see verbena run --help)\n");
  EXPECT_EQ(said({"run", "--profile", folder_ + "/", "--", "true"}),
            "verbena: " + folder_ + "/: is a folder, not a file (see verbena run --help)\n");
}

TEST_F(RunCommand, HelpShowsWhereTheProgramGoes) {
  const Outcome outcome = verbena({"run", "--help"});
  EXPECT_TRUE(outcome.exited_with(0));
  EXPECT_NE(outcome.out.find("\nUsage: verbena run [OPTIONS] [--] PROGRAM [ARGUMENTS...]\n"),
            std::string::npos)
      << outcome.out;
}

// The loader goes on without a library that it does not find: nothing would be checked.
TEST_F(RunCommand, CheckNeedsTheChecker) {
  const Outcome outcome = verbena({"check", "--", "true"});
  EXPECT_TRUE(outcome.exited_with(1));
  EXPECT_NE(outcome.err.find("/libverbena-check.so: build all of Verbena, or install its package"),
            std::string::npos)
      << outcome.err;
}

TEST_F(RunCommand, OutputThatCannotBeWrittenFails) {
  const auto full = [&](const std::string& words) {
    return run({"/bin/sh", "-c", std::string(VERBENA_COMMAND) + " " + words + " >/dev/full"}, environment_);
  };
  for (const char* words : {"explain --list", "check --list", "status", "env", "--help"}) {
    const Outcome outcome = full(words);
    EXPECT_TRUE(outcome.exited_with(1)) << words;
    EXPECT_EQ(outcome.err, "verbena: cannot write to standard output\n") << words;
  }
}

// Before the program runs, which may take long.
TEST_F(RunCommand, AFileThatCannotBeWrittenIsToldFirst) {
  const Outcome outcome = verbena({"trace", "-o", "/no/such/folder/trace.json", "--", "echo", "ran"});
  EXPECT_TRUE(outcome.exited_with(1));
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err, "verbena: cannot write to /no/such/folder/trace.json: No such file or directory\n");
}

TEST_F(RunCommand, HandsArgumentsOnAsTheyAre) {
  const Outcome outcome =
      verbena({"run", "--", "printf", "<%s>", "a b", "", "it's", "two\nlines", "--node", "--"});
  EXPECT_EQ(outcome.out, "<a b><><it's><two\nlines><--node><-->");
}

TEST_F(RunCommand, NeedsNoDashesBeforeAPlainProgram) {
  EXPECT_EQ(verbena({"run", "--devices", "2", "printf", "%s.", "--devices", "-x"}).out, "--devices.-x.");
}

TEST_F(RunCommand, LeavesDashesBehindTheProgramToTheProgram) {
  EXPECT_EQ(verbena({"run", "printf", "%s.", "--", "a"}).out, "--.a.");
}

TEST_F(RunCommand, NamesTheNode) {
  EXPECT_EQ(verbena({"run", "--", "sh", "-c", "printf %s \"$VERBENA_NODE\""}).out,
            folder_ + "/verbena-" + std::to_string(geteuid()) + "/default-1-eth");
}

TEST_F(RunCommand, MakesTheNode) {
  const Outcome outcome = verbena(
      {"run", "--devices", "2", "--", "sh", "-c", "cd \"$VERBENA_NODE\"/sys/class/infiniband; echo *"});
  EXPECT_EQ(outcome.out, "verbena0 verbena1\n");
}

TEST_F(RunCommand, KeepsNamedNodesApart) {
  const std::vector<std::string> tail = {"--", "sh", "-c", "printf %s \"$VERBENA_NODE\""};
  std::vector<std::string> mine = {"run", "--node", "mine"};
  std::vector<std::string> yours = {"run", "--node", "yours"};
  mine.insert(mine.end(), tail.begin(), tail.end());
  yours.insert(yours.end(), tail.begin(), tail.end());
  EXPECT_NE(verbena(mine).out, verbena(yours).out);
}

TEST_F(RunCommand, PutsThePreloadBehindWhatIsThere) {
  preload("libm.so.6");
  const std::string seen = verbena({"run", "--", "sh", "-c", "printf %s \"$LD_PRELOAD\""}).out;
  const std::string wanted = "libm.so.6:" + kPreload;
  ASSERT_GE(seen.size(), wanted.size());
  EXPECT_EQ(seen.substr(seen.size() - wanted.size()), wanted);
}

TEST_F(RunCommand, MayBeNested) {
  const std::string once = verbena({"run", "--", "env"}).out;
  const std::string twice = verbena({"run", "--", VERBENA_COMMAND, "run", "--", "env"}).out;
  const auto lines = [](const std::string& text) {
    std::vector<std::string> found;
    for (size_t from = 0, to; (to = text.find('\n', from)) != std::string::npos; from = to + 1)
      found.push_back(text.substr(from, to - from));
    std::sort(found.begin(), found.end());
    return found;
  };
  EXPECT_EQ(lines(once), lines(twice));
}

TEST_F(RunCommand, KeepsTheNodeWithinItself) {
  const std::vector<std::string> show = {"sh", "-c", "echo $VERBENA_NODE"};
  const auto within = [&](std::vector<std::string> outer, const std::vector<std::string>& inner) {
    std::vector<std::string> words = {"run"};
    words.insert(words.end(), outer.begin(), outer.end());
    for (const char* word : {"--", VERBENA_COMMAND, "run"}) words.push_back(word);
    words.insert(words.end(), inner.begin(), inner.end());
    words.push_back("--");
    words.insert(words.end(), show.begin(), show.end());
    const std::string node = verbena(words).out;
    return node.substr(node.rfind('/') + 1);
  };
  EXPECT_EQ(within({"--node", "a", "--devices", "2"}, {}), "a-2-eth\n");
  EXPECT_EQ(within({"--node", "a-b", "--link-layer", "infiniband"}, {"--devices", "3"}), "a-b-3-ib\n");
  EXPECT_EQ(within({"--node", "a", "--devices", "2"}, {"--node", "b"}), "b-2-eth\n");
  EXPECT_EQ(within({"--node", "a"}, {"--node", "default"}), "default-1-eth\n");
  const std::string minimal = within({"--profile", "minimal"}, {});
  EXPECT_NE(minimal.find("minimal"), std::string::npos) << minimal;
  EXPECT_EQ(within({"--profile", "minimal", "--node", "a"}, {"--node", "b"}),
            "b" + minimal.substr(std::strlen("default")));
  EXPECT_EQ(within({"--profile", "minimal"}, {"--profile", "default"}), "default-1-eth\n");
}

// The other commands that choose a node by options complete them in the same way.
TEST_F(RunCommand, StatusAndEventWithinItKeepTheNode) {
  const auto within = [&](const std::vector<std::string>& inner) {
    std::vector<std::string> words = {"run",       "--node",  "a",  "--devices",    "2",
                                      "--profile", "minimal", "--", VERBENA_COMMAND};
    words.insert(words.end(), inner.begin(), inner.end());
    return verbena(words);
  };
  const Outcome event = within({"event", "verbena1", "gid-change", "--node", "a"});
  EXPECT_EQ(event.status, 0) << event.err;
  const Outcome status = within({"status", "--node", "a"});
  EXPECT_EQ(status.status, 0) << status.out;
  EXPECT_NE(status.out.find("/a-2-eth-minimal"), std::string::npos) << status.out;
  const Outcome other = within({"status", "--devices", "1"});
  EXPECT_NE(other.out.find("/a-1-eth-minimal"), std::string::npos) << other.out;
}

TEST_F(RunCommand, KeepsTheNodeOfEnv) {
  const std::string shell = "eval \"$(" VERBENA_COMMAND " env --node e --devices 2)\"; " VERBENA_COMMAND
                            " run -- sh -c 'echo $VERBENA_NODE'";
  const std::string node = run({"/bin/sh", "-c", shell}, environment_).out;
  EXPECT_EQ(node.substr(node.rfind('/') + 1), "e-2-eth\n");
}

TEST_F(RunCommand, MakesTheUsualNodeIfThatOfTheEnvironmentIsGone) {
  environment_["VERBENA_NODE"] = folder_ + "/nowhere";
  const std::string node = verbena({"run", "--", "sh", "-c", "echo $VERBENA_NODE"}).out;
  EXPECT_EQ(node.substr(node.rfind('/') + 1), "default-1-eth\n");
}

TEST_F(RunCommand, AppendsItsDriver) {
  environment_["RDMAV_DRIVERS"] = "one;two";
  EXPECT_EQ(verbena({"run", "--", "sh", "-c", "printf %s \"$RDMAV_DRIVERS\""}).out, "one:two:" + kDriver);
}

TEST_F(RunCommand, TakesOverTheDriversOfTheOlderVariable) {
  environment_["IBV_DRIVERS"] = "one";
  EXPECT_EQ(verbena({"run", "--", "sh", "-c", "printf %s \"$RDMAV_DRIVERS\""}).out, "one:" + kDriver);
}

TEST_F(RunCommand, AppendsTheLinkOrderOfAsan) {
  environment_["ASAN_OPTIONS"] = "verify_asan_link_order=1";
  const std::string seen = verbena({"run", "--", "sh", "-c", "printf %s \"$ASAN_OPTIONS\""}).out;
  EXPECT_EQ(seen.rfind("verify_asan_link_order=1:verify_asan_link_order=0", 0), 0u) << seen;
}

#ifdef VERBENA_SANITIZER_RUNTIME
TEST_F(RunCommand, PutsTheSanitizersRuntimeFirst) {
  preload("libm.so.6");
  const std::string seen = verbena({"run", "--", "sh", "-c", "printf %s \"$LD_PRELOAD\""}).out;
  EXPECT_LT(seen.find(VERBENA_SANITIZER_RUNTIME), seen.find("libm.so.6")) << seen;
}
#endif

TEST_F(RunCommand, SaysWhyThereIsNoNode) {
  environment_["XDG_RUNTIME_DIR"] = folder_;
  ASSERT_EQ(mkdir((folder_ + "/verbena").c_str(), 0700), 0);
  ASSERT_EQ(chmod((folder_ + "/verbena").c_str(), 0755), 0);
  const Outcome outcome = verbena({"run", "--", "true"});
  EXPECT_TRUE(outcome.exited_with(1));
  EXPECT_NE(outcome.err.find("mode 0755"), std::string::npos) << outcome.err;
}

// What others put into /tmp denies nobody service.
TEST_F(RunCommand, TakesAnotherNameThanAFolderThatIsOpenToOthers) {
  const std::string usual = folder_ + "/verbena-" + std::to_string(geteuid());
  ASSERT_EQ(mkdir(usual.c_str(), 0700), 0);
  ASSERT_EQ(chmod(usual.c_str(), 0755), 0);
  const Outcome outcome = verbena({"run", "--", "sh", "-c", "echo $VERBENA_NODE"});
  EXPECT_TRUE(outcome.exited_with(0)) << outcome.err;
  EXPECT_EQ(outcome.out.find(usual + ".1/"), 0u) << outcome.out;
}

TEST_F(RunCommand, SaysThatAFileMayNotBeSoLarge) {
  const Outcome outcome =
      run({"/bin/sh", "-c", "ulimit -f 100; exec " VERBENA_COMMAND " run -- true"}, environment_);
  EXPECT_TRUE(outcome.exited_with(1));
  EXPECT_NE(outcome.err.find("File too large"), std::string::npos) << outcome.err;
}

TEST_F(RunCommand, SaysWhereItLookedForTheLibraries) {
  const std::string alone = folder_ + "/verbena";
  fs::copy_file(VERBENA_COMMAND, alone);
  const Outcome outcome = run({alone, "run", "--", "true"}, environment_);
  EXPECT_TRUE(outcome.exited_with(1));
  EXPECT_NE(outcome.err.find("no libverbena-preload.so in /"), std::string::npos) << outcome.err;
}

TEST_F(RunCommand, RefusesAPlaceThatLdPreloadCannotName) {
  const fs::path place = folder_ + "/my tools";
  fs::create_directories(place / "bin");
  fs::create_directories(place / "lib/verbena");
  fs::copy_file(VERBENA_COMMAND, place / "bin/verbena");
  fs::copy_file(kPreload, place / "lib/verbena/libverbena-preload.so");
  const Outcome outcome = run({(place / "bin/verbena").string(), "run", "--", "true"}, environment_);
  EXPECT_TRUE(outcome.exited_with(1));
  EXPECT_NE(outcome.err.find("install Verbena elsewhere"), std::string::npos) << outcome.err;
}

using EnvCommand = CommandTest;

TEST_F(EnvCommand, GivesAShellWhatRunGives) {
  const std::string by_run = verbena({"run", "--", "sh", "-c", "echo \"$VERBENA_NODE $LD_PRELOAD\""}).out;
  const std::string script =
      "eval \"$(" VERBENA_COMMAND
      " env)\"; preload=$LD_PRELOAD; unset LD_PRELOAD; echo \"$VERBENA_NODE $preload\"";
  EXPECT_EQ(run({"/bin/sh", "-c", script}, environment_).out, by_run);
}

TEST_F(EnvCommand, QuotesWhatAShellWouldTakeApart) {
  const std::string hostile = folder_ + "/a b'c\"$(touch x)`y`\\\n;z";
  ASSERT_TRUE(fs::create_directory(hostile));
  environment_["TMPDIR"] = hostile;
  const Outcome outcome = run(
      {"/bin/sh", "-c", "eval \"$(" VERBENA_COMMAND " env)\"; unset LD_PRELOAD; printf %s \"$VERBENA_NODE\""},
      environment_);
  EXPECT_EQ(outcome.out, hostile + "/verbena-" + std::to_string(geteuid()) + "/default-1-eth") << outcome.err;
}

TEST_F(EnvCommand, FailsWhereItCannotWrite) {
  const Outcome outcome = run({"/bin/sh", "-c", VERBENA_COMMAND " env > /dev/full"}, environment_);
  EXPECT_TRUE(outcome.exited_with(1));
}

struct Misuse {
  const char* name;
  std::vector<std::string> words;
};

class Usage : public CommandTest, public ::testing::WithParamInterface<Misuse> {};

TEST_P(Usage, IsSaidInOneLineAndEndsWithTwo) {
  const Outcome outcome = verbena(GetParam().words);
  EXPECT_TRUE(outcome.exited_with(2)) << outcome.status;
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  EXPECT_EQ(outcome.err.rfind("verbena: ", 0), 0u) << outcome.err;
}

INSTANTIATE_TEST_SUITE_P(
    Misuses, Usage,
    ::testing::Values(
        Misuse{"NoCommand", {}}, Misuse{"UnknownCommand", {"walk"}}, Misuse{"UnknownOption", {"--fast"}},
        Misuse{"NoProgram", {"run"}}, Misuse{"NoProgramBehindDashes", {"run", "--"}},
        Misuse{"UnknownRunOption", {"run", "--fast", "--", "true"}},
        Misuse{"NoDevices", {"run", "--devices", "0", "--", "true"}},
        Misuse{"TooManyDevices", {"run", "--devices", "17", "--", "true"}},
        Misuse{"DevicesNotANumber", {"run", "--devices", "x", "--", "true"}},
        Misuse{"NegativeDevices", {"run", "--devices=-1", "--", "true"}},
        Misuse{"UnknownLinkLayer", {"run", "--link-layer", "token-ring", "--", "true"}},
        Misuse{"NodeWithSlash", {"run", "--node", "../x", "--", "true"}},
        Misuse{"NodeWithNewline", {"run", "--node", "a\nb", "--", "true"}},
        Misuse{"EmptyNode", {"run", "--node", "", "--", "true"}}, Misuse{"MissingValue", {"env", "--node"}},
        Misuse{"EnvWithProgram", {"env", "--", "true"}}, Misuse{"EnvWithWord", {"env", "true"}},
        Misuse{"UnknownStatusOption", {"status", "--fast"}}, Misuse{"StatusWithWord", {"status", "all"}},
        Misuse{"UnknownDoctorOption", {"doctor", "--fast"}}, Misuse{"DoctorPortNotANumber", {"doctor", "--port", "x"}},
        Misuse{"KeyWithoutFile", {"key"}}, Misuse{"KeyWithTwoFiles", {"key", "a", "b"}},
        Misuse{"UnknownKeyOption", {"key", "--fast", "a"}}),
    [](const auto& misuse) { return misuse.param.name; });

TEST_F(RunCommand, HelpTeachesByExample) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"--help"}, {"run", "--help"}, {"env", "--help"}, {"status", "--help"},
        {"doctor", "--help"}, {"event", "--help"}, {"key", "--help"}}) {
    const Outcome outcome = verbena(words);
    EXPECT_TRUE(outcome.exited_with(0));
    EXPECT_NE(outcome.out.find("Examples:"), std::string::npos) << outcome.out;
  }
}

TEST_F(RunCommand, SaysItsVersion) {
  const Outcome outcome = verbena({"--version"});
  EXPECT_TRUE(outcome.exited_with(0));
  EXPECT_EQ(outcome.out.rfind("verbena ", 0), 0u);
}

}  // namespace
}  // namespace verbena::test
