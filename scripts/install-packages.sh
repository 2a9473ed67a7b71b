#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# Installs what is missing of the Debian/Ubuntu packages for a purpose; does nothing, and asks nobody, when
# everything is there. sudo is used only by users who are not root.
#
#   scripts/install-packages.sh PURPOSE...      purposes: build test bench nightly demo
set -eu

packages_for() {
  case $1 in
    build) echo g++ cmake ninja-build libibverbs-dev librdmacm-dev libcli11-dev libfmt-dev nlohmann-json3-dev libtomlplusplus-dev libncurses-dev systemtap-sdt-dev ;;
    test) echo libgtest-dev libgmock-dev librdmacm-dev ibverbs-utils ibverbs-providers perftest qperf rdmacm-utils ucx-utils libfabric-bin iperf3 fio openmpi-bin libopenmpi-dev mpich libmpich-dev python3-mpi4py python3 python3-pyverbs python3-yaml util-linux man-db openssh-client git pkg-config python3-pytest iproute2 nftables bubblewrap netavark golang-github-containers-common qemu-system-x86 qemu-utils qemu-block-extra tgt libiscsi-bin busybox-static gdb valgrind libjemalloc2 libtcmalloc-minimal4 tshark chromium ;;
    bench) echo perftest rdmacm-utils ucx-utils libfabric-bin libfabric-dev iproute2 ethtool nftables python3 ;;
    nightly) echo ceph-mon ceph-osd ceph-common dapl2-utils ;;
    demo) echo ibverbs-utils ibverbs-providers perftest ;;
    *) echo "$0: unknown purpose '$1' (build, test, bench, nightly, demo)" >&2; return 2 ;;
  esac
}

installed() {
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

missing=
for purpose in "$@"; do
  packages=$(packages_for "$purpose")
  for package in $packages; do
    case " $missing " in *" $package "*) continue ;; esac
    installed "$package" || missing="$missing $package"
  done
done
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null; then
  echo "This is not Debian or Ubuntu. Please install the equivalents of:$missing" >&2
  exit 1
fi
echo "Installing:$missing"
as_root apt-get update -q
as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing
