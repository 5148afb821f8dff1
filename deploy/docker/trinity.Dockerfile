# Trinity-RFT with vLLM and Ray, for Explorer and Trainer on NVIDIA GPUs. About 20 GB.
#   docker build -f deploy/docker/trinity.Dockerfile -t slipstream-trinity:0.1.0 .
# The CUDA libraries come with the wheels of torch, the driver's from the NVIDIA Container Toolkit: no CUDA base image.
ARG BASE=python:3.11.13-slim-bookworm

FROM ${BASE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
COPY locks/build.txt locks/trinity.txt locks/
RUN pip install --require-hashes --requirement locks/build.txt && python -m venv /opt/slipstream
# The lock names every package of the environment: pip resolves nothing (it would find no solution, see docs/trinity.md).
RUN /opt/slipstream/bin/pip install --no-deps --require-hashes --requirement locks/trinity.txt
COPY pyproject.toml README.md LICENSE ./
COPY service service
COPY explorer.yaml trainer.yaml ./
COPY overlays overlays
COPY examples/first_hour examples/first_hour
RUN pip wheel --no-deps --no-build-isolation --wheel-dir /wheel . \
    && /opt/slipstream/bin/pip install --no-deps /wheel/*.whl

FROM ${BASE}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Slipstream Trinity" \
      org.opencontainers.image.description="Trinity-RFT's Explorer and Trainer, as Slipstream runs them" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="docker.io/library/python:3.11.13-slim-bookworm"
# Triton compiles the launchers of its kernels while it runs: a C compiler, with the headers that the base has.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc g++ libc6-dev libnuma1 \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 10001 slipstream \
    && useradd --uid 10001 --gid 10001 --home-dir /home/slipstream --create-home --shell /usr/sbin/nologin slipstream \
    && install --directory --owner 10001 --group 10001 /checkpoints /models /var/lib/ray /home/slipstream/.cache
COPY --from=build /opt/slipstream /opt/slipstream
# What is compiled at run time, and whatever else is written to ~, goes to one directory, for a volume: the root is
# read-only. Nothing is told to, or asked from, the internet.
ENV PATH=/opt/slipstream/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    HOME=/home/slipstream/.cache TORCHINDUCTOR_CACHE_DIR=/home/slipstream/.cache/inductor \
    HF_HUB_OFFLINE=1 RAY_USAGE_STATS_ENABLED=0 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1
USER 10001:10001
WORKDIR /home/slipstream
EXPOSE 8010
# For the Explorer; docker-compose.yml and the Helm chart have the Trainer's.
HEALTHCHECK --interval=10s --timeout=5s --start-period=900s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen('http://127.0.0.1:' + os.environ.get('EXPLORER_PORT', '8010') + '/health', timeout=4)"]
ENTRYPOINT ["slipstream"]
CMD ["trinity", "--config", "/etc/slipstream/explorer.yaml"]
