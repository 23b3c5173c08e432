# syntax=docker/dockerfile:1
# docker build --target operator|extender|trainer -t NAME .      (any architecture that Python and the wheels are built for)
# The base is named by digest (3.13.14): a tag can be moved to other content. Another one: --build-arg PYTHON=...
ARG PYTHON=docker.io/library/python:3.13-slim-bookworm@sha256:67a1e1f215ccda113cfc024e8639049257e88f273898f595b61476d128d387e8

# --- the project's own wheel: images hold that, never the source tree
FROM ${PYTHON} AS wheel
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
COPY requirements/operator.txt requirements/
# Hash-checked like everything else; the set holds the build backend.
RUN python -m venv /build && /build/bin/pip install --require-hashes -r requirements/operator.txt
COPY pyproject.toml README.md LICENSE ./
COPY operator operator
COPY extender extender
COPY models models
COPY cli cli
RUN /build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /wheels .

# --- one environment a service: its locked requirements (a layer that stays while only sources change), the wheel, and no pip that could add more
FROM ${PYTHON} AS environment
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore

FROM environment AS operator-environment
COPY requirements/operator.txt /requirements.txt
RUN python -m venv /opt/tiphys && /opt/tiphys/bin/pip install --require-hashes -r /requirements.txt
COPY --from=wheel /wheels /wheels
RUN /opt/tiphys/bin/pip install --no-deps /wheels/*.whl \
 && /opt/tiphys/bin/pip uninstall --yes hatchling editables trove-classifiers pip

FROM environment AS extender-environment
COPY requirements/extender.txt /requirements.txt
RUN python -m venv /opt/tiphys && /opt/tiphys/bin/pip install --require-hashes -r /requirements.txt
COPY --from=wheel /wheels /wheels
RUN /opt/tiphys/bin/pip install --no-deps /wheels/*.whl \
 && /opt/tiphys/bin/pip uninstall --yes hatchling editables trove-classifiers pip

FROM environment AS trainer-environment
# Empty: torch as it is locked, with its CUDA libraries (6 GB). For nodes without a GPU: the address of an index with CPU wheels, and the
# sha256 of its wheel of the locked version for this Python and architecture.
ARG TORCH_CPU_INDEX=
ARG TORCH_CPU_SHA256=
COPY requirements/train.txt requirements/cpu.py /requirements/
RUN python /requirements/cpu.py /requirements/train.txt $TORCH_CPU_SHA256 > /requirements.txt
RUN python -m venv /opt/tiphys \
 && /opt/tiphys/bin/pip install --require-hashes ${TORCH_CPU_INDEX:+--extra-index-url "$TORCH_CPU_INDEX"} -r /requirements.txt
COPY --from=wheel /wheels /wheels
RUN /opt/tiphys/bin/pip install --no-deps /wheels/*.whl \
 && /opt/tiphys/bin/pip uninstall --yes hatchling editables trove-classifiers pip

# --- what runs: no build tool, no root, nothing written outside volumes
FROM ${PYTHON} AS runtime
# One BLAS thread: more only fight for the cores of a small pod, and the tail of latency grows tenfold.
ENV PATH=/opt/tiphys/bin:$PATH \
    PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PYTHONFAULTHANDLER=1 PYTHONSAFEPATH=1 \
    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1
RUN groupadd --gid 65532 tiphys && useradd --uid 65532 --gid 65532 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin tiphys
LABEL org.opencontainers.image.source="https://github.com/tiphys-io/tiphys" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.vendor="Tiphys maintainers"
USER 65532:65532
WORKDIR /
STOPSIGNAL SIGTERM
# Kubernetes probes the status listener; a check of the container engine's own would only run beside it.
HEALTHCHECK NONE

FROM runtime AS operator
LABEL org.opencontainers.image.title="tiphys-operator"
COPY --from=operator-environment /opt/tiphys /opt/tiphys
EXPOSE 8080
CMD ["python", "-m", "tiphys_operator"]

FROM runtime AS trainer
LABEL org.opencontainers.image.title="tiphys-trainer"
COPY --from=trainer-environment /opt/tiphys /opt/tiphys
CMD ["tiphys", "train", "placement", "--help"]

FROM runtime AS extender
LABEL org.opencontainers.image.title="tiphys-extender"
COPY --from=extender-environment /opt/tiphys /opt/tiphys
EXPOSE 8080 8888
CMD ["python", "-m", "tiphys_extender"]
