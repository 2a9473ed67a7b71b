#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Shows what Verbena does: an RDMA device without any RDMA hardware, and stock programs that use it. It is built first,
# which takes about a minute on two processors that are free; the rest takes seconds. Needs no root, except to
# install missing packages.
#
#   ./demo.sh                              installs what is missing, builds into build/demo
#   VERBENA_DEMO_BUILD=FOLDER ./demo.sh    shows what has been built there, and neither installs nor builds
set -euo pipefail
cd "$(dirname "$0")"

BUILD=${VERBENA_DEMO_BUILD:-build/demo}
VERBENA=$BUILD/bin/verbena
SECONDS_TO_LISTEN=20
SECONDS_TO_END=60
results=$(mktemp -d)
server=

finish() {
  [ -z "$server" ] || kill "$server" 2>/dev/null || true
  rm -rf "$results"
}
trap finish EXIT

say() {
  if [ -t 1 ]; then printf '\n\033[1m%s\033[0m\n' "$*"; else printf '\n== %s\n' "$*"; fi
}

run() { "$VERBENA" run --node demo -- "$@"; }

build() {
  # Only the programs used below. Without link-time optimisation: half the compile time, and slightly slower messages.
  if ! { cmake --preset release -B "$BUILD" -DVERBENA_TESTS=OFF -DVERBENA_BENCH=OFF \
           -DVERBENA_PRECOMPILE=ON -DVERBENA_WHOLE_PROGRAM=OFF &&
         cmake --build "$BUILD" -j "$(nproc)" --target verbena verbena-preload verbena_provider verbena_check; } \
       >"$results/build" 2>&1; then
    cat "$results/build"
    echo "The build failed; its output is above."
    exit 1
  fi
}

listening() {  # state 0A of /proc/net/tcp is LISTEN
  local hex
  hex=$(printf '%04X' "$1")
  # Not through a pipe: with pipefail, a grep that ends early would fail the cat before it.
  grep -Eqs "^ *[0-9]+: [0-9A-F]+:$hex [0-9A-F]+:0000 0A" /proc/net/tcp /proc/net/tcp6
}

# pair NAME PROGRAM OPTIONS...: a server and a client of PROGRAM, each a process of its own; the client's output
# goes to the screen and to $results/NAME.
pair() {
  local name=$1 program=$2 port=$((20000 + RANDOM % 10000)) deadline=$((SECONDS + SECONDS_TO_LISTEN))
  shift 2
  echo "\$ $program $*            (the server)"
  echo "\$ $program $* 127.0.0.1  (the client; this is what it prints)"
  timeout $SECONDS_TO_END "$VERBENA" run --node demo -- "$program" -p "$port" "$@" >"$results/server" 2>&1 &
  server=$!
  until listening "$port"; do
    if ! kill -0 "$server" 2>/dev/null || [ "$SECONDS" -gt "$deadline" ]; then
      cat "$results/server"
      echo "The server did not start; what it said is above. \"$VERBENA doctor\" may know why."
      exit 1
    fi
    sleep 0.05
  done
  if ! timeout $SECONDS_TO_END "$VERBENA" run --node demo -- "$program" -p "$port" "$@" 127.0.0.1 \
      >"$results/$name" 2>&1 || ! wait "$server"; then
    cat "$results/$name" "$results/server"
    echo "$program failed; what client and server said is above. \"$VERBENA doctor\" may know why."
    exit 1
  fi
  server=
  cat "$results/$name"
  if grep "invalid data" "$results/server"; then
    echo "$program received other bytes than were sent."
    exit 1
  fi
}

# The last row of numbers that perftest printed, one column of it.
column() { awk -v column="$2" '$1 ~ /^[0-9]+$/ && NF >= 5 { value = $column } END { print value }' "$results/$1"; }

if [ -z "${VERBENA_DEMO_BUILD:-}" ]; then
  scripts/install-packages.sh build demo
  say "Building Verbena"
  build
fi

hardware=$({ ls /sys/class/infiniband 2>/dev/null || true; } | wc -l)
say "1. The device"
echo "The kernel of this machine shows $hardware RDMA device(s). Under \"verbena run\" a program sees this one,"
echo "through the distribution's own libibverbs:"
echo
echo "\$ verbena run -- ibv_devinfo"
run ibv_devinfo

say "2. Two processes exchange messages: ibv_rc_pingpong, from the package ibverbs-utils"
pair pingpong ibv_rc_pingpong -g 1 -c

say "3. How long one RDMA WRITE of 8 bytes takes: ib_write_lat, from the package perftest"
pair latency ib_write_lat -F -s 8

say "4. How much RDMA WRITEs of 64 KiB move: ib_write_bw, from the package perftest"
pair bandwidth ib_write_bw -F

rounds=$(awk '/iters in/ { print $1 }' "$results/pingpong")
say "What was seen"
cat <<TEXT
- Programs from the distribution's packages, unmodified, found an RDMA device named verbena0 here, run by
  $(id -un) (uid $(id -u)), with no kernel module and no service behind it.
- Two of them, separate processes, exchanged $rounds messages in each direction over a reliable connection, and
  the bytes that arrived were the right ones.
- One RDMA WRITE of 8 bytes took $(column latency 5) microseconds (half a round trip, typical).
- RDMA WRITEs of 64 KiB moved $(column bandwidth 4) MB per second (perftest counts 2^20 bytes as one MB).

Try your own:  $VERBENA run -- YOUR-PROGRAM      README.md says more.
TEXT
