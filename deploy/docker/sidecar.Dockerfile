# The sidecar, and with EXTRAS=embedded the embedded engine as well, computing on the CPU.
#   docker build -f deploy/docker/sidecar.Dockerfile -t slipstream-sidecar:0.1.0 .
#   docker buildx build --sbom=true --provenance=mode=max ...    adds the list of what is in it, for a registry
ARG BASE=python:3.11.13-slim-bookworm

FROM ${BASE} AS build
# Of postgres, otel, data and embedded those that are wanted, with a space between.
ARG EXTRAS=""
# torch alone comes from here: PyTorch's builds without CUDA (some GB less).
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
# The dependencies first: a change of the source leaves these layers, with torch in them, as they are. Each file that is
# installed has a hash in a lock; the locks are whole, but for torch, which pip would ask a hash of without --no-deps.
COPY constraints.txt ./
COPY locks locks
RUN pip install --require-hashes --requirement locks/build.txt && python -m venv /opt/slipstream
RUN set --; for lock in sidecar ${EXTRAS}; do set -- "$@" --requirement "locks/$lock.txt"; done \
    && /opt/slipstream/bin/pip install --no-deps --require-hashes "$@"
RUN case " ${EXTRAS} " in *" embedded "*) /opt/slipstream/bin/pip install --no-deps --constraint constraints.txt \
        --index-url "${TORCH_INDEX}" torch ;; esac
COPY pyproject.toml README.md LICENSE ./
COPY service service
COPY explorer.yaml trainer.yaml ./
COPY overlays overlays
COPY examples/first_hour examples/first_hour
RUN pip wheel --no-deps --no-build-isolation --wheel-dir /wheel . \
    && /opt/slipstream/bin/pip install --no-deps /wheel/*.whl \
    && /opt/slipstream/bin/pip check

FROM ${BASE}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Slipstream" \
      org.opencontainers.image.description="An online-training sidecar: agents keep their production model, a policy model learns" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="docker.io/library/python:3.11.13-slim-bookworm"
# A fresh named volume takes its owner from the directory that it covers.
RUN groupadd --gid 10001 slipstream \
    && useradd --uid 10001 --gid 10001 --home-dir /home/slipstream --create-home --shell /usr/sbin/nologin slipstream \
    && install --directory --owner 10001 --group 10001 /var/lib/slipstream /checkpoints /models
COPY --from=build /opt/slipstream /opt/slipstream
ENV PATH=/opt/slipstream/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HF_HUB_OFFLINE=1
USER 10001:10001
WORKDIR /var/lib/slipstream
EXPOSE 8100
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8100/healthz', timeout=4)"]
ENTRYPOINT ["slipstream"]
CMD ["serve", "--config", "/etc/slipstream/sidecar.yaml"]
