# SPDX-License-Identifier: BSD-2-Clause
#
# The context is the checkout: docker build -f docker/Dockerfile [--target devel] [--build-arg BASE=ubuntu:24.04] .
#
#   runtime   (the last one) any program started in it sees verbena0
#   devel     runtime, and headers, compilers, the stock tools, verbs-conformance
#
# BASE is any Debian or Ubuntu with apt. Builder and image have the same one: the provider fits the libibverbs it was
# built beside.
ARG BASE=debian:bookworm-slim

FROM ${BASE} AS builder
COPY scripts/install-packages.sh /source/scripts/
RUN /source/scripts/install-packages.sh build \
 && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends libgtest-dev
COPY . /source
RUN cmake -S /source -B /build -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_INSTALL_PREFIX=/usr/local \
      -DVERBENA_TESTS=OFF -DVERBENA_BENCH=OFF -DVERBENA_CONFORMANCE=ON \
 && cmake --build /build \
 && DESTDIR=/installed cmake --install /build --strip \
 && install -D -m 755 /source/docker/entry /installed/usr/local/bin/verbena-entry \
 && install -m 755 /source/docker/pair /installed/usr/local/bin/verbena-pair \
 && install -s -m 755 /build/bin/verbs-conformance /verbs-conformance

FROM ${BASE} AS runtime
# The name of fmt's library carries its version, so it is asked for as a pattern.
RUN apt-get update -q \
 && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends \
      libibverbs1 librdmacm1 '^libfmt[0-9]+(t64)?$' \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 10001 --user-group --create-home verbena \
 && install -d -o verbena -g verbena -m 700 /var/lib/verbena
COPY --from=builder /installed/usr/local /usr/local
USER verbena
WORKDIR /home/verbena
ENTRYPOINT ["verbena-entry"]
CMD ["verbena", "doctor"]

FROM runtime AS devel
USER root
RUN apt-get update -q \
 && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends \
      g++ make cmake ninja-build gdb libibverbs-dev librdmacm-dev \
      ibverbs-utils ibverbs-providers perftest rdmacm-utils qperf python3-pyverbs iproute2 \
 && rm -rf /var/lib/apt/lists/*
COPY --from=builder /verbs-conformance /usr/local/bin/
USER verbena

FROM runtime
