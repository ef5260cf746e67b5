# streamgauge in a container. Needs BuildKit, which `docker build` uses since Docker 23.
#
#   docker build -t streamgauge .                     on the CPU
#   docker build -t streamgauge:cuda --target cuda .  with Llama models on an NVIDIA GPU
#
# The builds keep their dependencies in cache mounts: after the first one only streamgauge itself is compiled.

# The version is rust-toolchain.toml's, which is not copied: it names components that a build does not need.
FROM rust:1.95.0-slim-trixie AS source
WORKDIR /src
COPY Cargo.toml Cargo.lock ./
COPY benches benches
COPY simd simd
COPY src src

FROM source AS build
RUN --mount=type=cache,id=streamgauge-registry,target=/usr/local/cargo/registry \
    --mount=type=cache,id=streamgauge-cpu,target=/src/target,sharing=locked \
    cargo build --release --locked \
    && install -D -t /out target/release/streamgauge
RUN install -d -o 65534 -g 65534 /data

# CUDA stays at 13.0: a driver takes only kernels of a toolkit no newer than itself, and 580 is the first for CUDA 13.
FROM nvidia/cuda:13.0.2-devel-ubuntu24.04 AS build-cuda
COPY --from=source /usr/local/cargo /usr/local/cargo
COPY --from=source /usr/local/rustup /usr/local/rustup
COPY --from=source /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=source /src /src
WORKDIR /src
# The card's compute capability: 80 for A100, 86 for RTX 30, 89 for RTX 40 and L4, 90 for H100 and H200, 120 for RTX 50.
# Kernels for quantised weights are compiled for this one alone.
ARG CUDA_COMPUTE_CAP=90
# The stubs stand in for the driver's libcuda, which no build machine has.
ENV CARGO_HOME=/usr/local/cargo \
    RUSTUP_HOME=/usr/local/rustup \
    PATH=/usr/local/cargo/bin:/usr/local/cuda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    LIBRARY_PATH=/usr/local/cuda/lib64:/usr/local/cuda/lib64/stubs \
    CUDA_COMPUTE_CAP=$CUDA_COMPUTE_CAP
# A target of its own: what the other build compiled wants that image's newer glibc.
RUN --mount=type=cache,id=streamgauge-registry,target=/usr/local/cargo/registry \
    --mount=type=cache,id=streamgauge-cuda,target=/src/target,sharing=locked \
    cargo build --release --locked --features cuda \
    && install -D -t /out target/release/streamgauge
RUN install -d -o 65534 -g 65534 /data

# The same Ubuntu as the build, so the same glibc. The NVIDIA container toolkit adds the driver's libcuda at start.
FROM nvidia/cuda:13.0.2-runtime-ubuntu24.04 AS cuda
COPY --from=build-cuda /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build-cuda /out/streamgauge /usr/local/bin/
COPY --from=build-cuda --chown=65534:65534 /data /data
# Kernels the driver compiled at the first start are kept there; the user has no home.
ENV CUDA_CACHE_PATH=/data/cuda
# Within a container, loopback would be nobody's: what is published decides who may connect.
ENV STREAMGAUGE_LISTEN=0.0.0.0:8484 \
    STREAMGAUGE_ADMIN=0.0.0.0:9464 \
    XDG_DATA_HOME=/data
USER 65534:65534
WORKDIR /data
VOLUME /data
EXPOSE 8484 9464
# Healthy means ready: listening, and every model of this process loaded.
HEALTHCHECK --interval=5s --timeout=3s --start-period=30s --retries=3 \
    CMD ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/${STREAMGAUGE_ADMIN##*:} && printf 'GET /readyz HTTP/1.0\\r\\n\\r\\n' >&3 && read -r _ status _ <&3 && [[ $status == 200 ]]"]
ENTRYPOINT ["streamgauge"]

# The same Debian as the build, so the same glibc. Last, so that it is what a build without --target makes.
FROM debian:trixie-20260918-slim AS runtime
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/streamgauge /usr/local/bin/
COPY --from=build --chown=65534:65534 /data /data
# Within a container, loopback would be nobody's: what is published decides who may connect.
ENV STREAMGAUGE_LISTEN=0.0.0.0:8484 \
    STREAMGAUGE_ADMIN=0.0.0.0:9464 \
    XDG_DATA_HOME=/data
USER 65534:65534
WORKDIR /data
VOLUME /data
EXPOSE 8484 9464
# Healthy means ready: listening, and every model of this process loaded.
HEALTHCHECK --interval=5s --timeout=3s --start-period=30s --retries=3 \
    CMD ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/${STREAMGAUGE_ADMIN##*:} && printf 'GET /readyz HTTP/1.0\\r\\n\\r\\n' >&3 && read -r _ status _ <&3 && [[ $status == 200 ]]"]
ENTRYPOINT ["streamgauge"]
