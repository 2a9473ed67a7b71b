#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# Builds Verbena and runs its tests; exits non-zero on the first preset with a failure.
#
#   ./test.sh                release, without the long tests
#   ./test.sh all            release with the long tests, then asan and tsan (docs/TESTING.md says which tests)
#   ./test.sh asan tsan      the presets that are named; release: with the long tests
set -eu
cd "$(dirname "$0")"

long=ON  # the long tests: planted faults, sweeps over all sizes
[ $# -gt 0 ] || long=OFF
presets=${*:-release}
[ "$presets" != all ] || presets="release asan tsan"
jobs=$(nproc)

selection() {  # the tests that a preset runs
  case $1 in
    release) [ $long = ON ] || echo "-LE ^long\$" ;;
    asan) echo "-L ^asan\$" ;;
    # The suites of the programs that the target tsan_tests builds. Of provider.verbs those with threads of their own.
    tsan) echo "-R ^unit\\.(.*/)?(Threads.*|CompletionRingThreads|SharedReceiveRingThreads|Hazards|Events|AsyncEvents|Rnr.*|Silent.*|Draining|Datagram.*|Multicast.*|UnreliableConnection|Connecting|Connected|ConnectedNodes|DatagramNodes|ConnectionListenerTest|TwoProcesses|Datagrams|Groups|Resolving|TheService|TheFailedDevice|TheDevice|TheInfinibandDevice|ControlRpc|ServiceSocketTest|MessageSocketTest|NodeMembershipTest|RemoteNode|ProgressLock|DrainBeforeClose|HostileNode|MulticastChannelTest|Chunk|XrcChunk|RepeatedRead|RefusedRequest|AddressesFollowed|PortDown|FailedDevice.*|Node|NodePath|NodeName|SegmentPassing|MetProcesses|WriterLock|Biased)\\.|^provider\\.rdma_cm\\.|^provider\\.verbs\\.(WrTest\\.TwoThreads|ResizeTest\\.UnderLoad)|^network\\.(pingpong\\.namespaces|rdma_cm\\.loopback|ledger\\.loopback)\$|^boundary\\.Descriptors\\." ;;
  esac
}

# The conformance suite is a program of its own: it runs on the device of the release build, which is the installed one.
options() {
  case $1 in
    release) echo "-DVERBENA_MUTANTS=$long" ;;
    asan | tsan) echo "-DVERBENA_CONFORMANCE=OFF -DVERBENA_BENCH=OFF" ;;
  esac
  echo "-DVERBENA_PRECOMPILE=ON"  # from nothing, as CI builds
}

target() {
  case $1 in
    tsan) echo "--target tsan_tests" ;;
  esac
}

# gcc's sanitizers cannot lay out their shadow memory where the kernel randomises more address bits than they support
# (vm.mmap_rnd_bits above 28, Ubuntu 24.04): they run without randomisation where that is allowed.
launcher() {
  case $1 in
    asan | tsan) if setarch "$(uname -m)" -R true 2>/dev/null; then echo "setarch $(uname -m) -R"; fi ;;
  esac
}

# Tests make and remove thousands of nodes, each with some hundred small files: eight times as fast in memory as on
# ext4, which checks every inode freed in the last seconds.
temporary=${TMPDIR:-/tmp}
if [ -z "${TMPDIR:-}" ] && [ -w /dev/shm ] && [ "$(df -Pk /dev/shm | awk 'NR == 2 { print $4 }')" -gt 1048576 ]; then
  temporary=/dev/shm
fi

scripts/install-packages.sh build test
for preset in $presets; do
  echo "== $preset: build"
  cmake --preset "$preset" $(options "$preset")
  $(launcher "$preset") cmake --build --preset "$preset" -j "$jobs" $(target "$preset")
  echo "== $preset: test"
  results=$PWD/build/$preset/results.xml
  scripts/stacks-of-slow-tests.py "build/$preset" "build/$preset/stacks.txt" &
  watcher=$!
  # One more than processors: some tests only wait, one of them for 74 seconds.
  TMPDIR=$temporary $(launcher "$preset") ctest --preset "$preset" -j "$((jobs + 1))" --no-tests=error \
    --output-junit "$results" $(selection "$preset") || { scripts/failed-tests.py "$results" "build/$preset/stacks.txt"; exit 8; }
  kill $watcher || true  # it may have ended: it only helps to explain a failure
  # Of a suite ctest tells only whether it failed (cmake/SuiteTests.cmake).
  sed -n "s/^\[  SKIPPED \] \([^ ,]*\).* ms)$/== $preset: skipped \1/p" "build/$preset/Testing/Temporary/LastTest.log"
done
