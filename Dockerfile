# The image of the server and the worker. Foreign code never runs in it: that is what the sandbox image is for.
#
#   docker build -t kernelwright .
#
# Without a registry: --build-arg BASE=kernelwright-debian:bookworm, which `kernelwright sandbox build` makes. Where the
# build does not reach the package index: put the wheels into wheels/ and add --build-arg PIP_NO_INDEX=1
# (docs/operating.md). Needs no BuildKit.
ARG BASE=python:3.12-slim-bookworm

FROM ${BASE} AS python
RUN if ! python3 -c 'import ensurepip, venv' 2>/dev/null; then \
        apt-get -q update && apt-get -qy install --no-install-recommends ca-certificates python3 python3-venv \
        && apt-get clean && rm -rf /var/lib/apt/lists/*; \
    fi

FROM python AS dependencies
ARG PIP_NO_INDEX
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_FIND_LINKS=/source/wheels PIP_CONSTRAINT=/source/constraints.txt
WORKDIR /source
COPY pyproject.toml constraints.txt wheel[s]/*.whl wheels/
RUN mv wheels/pyproject.toml wheels/constraints.txt . \
    && python3 -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"], sep="\n")' \
        > dependencies.txt \
    && python3 -m venv /opt/kernelwright && /opt/kernelwright/bin/pip install -q -r dependencies.txt \
    && python3 -m venv /opt/build && /opt/build/bin/pip install -q hatchling

FROM dependencies AS package
COPY README.md LICENSE ./
COPY tasks tasks
COPY sandbox sandbox
COPY evaluator evaluator
COPY agents agents
COPY whole_models whole_models
COPY db db
COPY service service
COPY web web
RUN /opt/build/bin/pip wheel -q --no-deps --no-build-isolation -w /wheel .

FROM python
RUN useradd --uid 10001 --create-home kernelwright \
    && install -d -o kernelwright -g kernelwright -m 700 /var/lib/kernelwright
COPY --from=dependencies /opt/kernelwright /opt/kernelwright
COPY --from=package /wheel /wheel
RUN /opt/kernelwright/bin/pip install -q --no-cache-dir --no-index --no-deps /wheel/*.whl && rm -r /wheel
ENV PATH=/opt/kernelwright/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    KERNELWRIGHT_DATA_DIR=/var/lib/kernelwright
WORKDIR /var/lib/kernelwright
USER kernelwright
STOPSIGNAL SIGTERM
ENTRYPOINT ["kernelwright"]
CMD ["serve", "--host", "0.0.0.0", "--no-worker"]
