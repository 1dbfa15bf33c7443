# One image for every service of docker-compose.yml but PostgreSQL. Needs no BuildKit.
#   docker build -t adder-search:cpu .
#   docker build -t adder-search:cuda --build-arg TORCH=cuda .
# PYTHON_IMAGE may be of Python 3.12 or 3.13 (python:3.13-slim-bookworm), for which requirements/ has TORCH=cuda alone.
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm@sha256:65a93d69fa75478d554f4ad27c85c1e69fa184956261b4301ebaf6dbb0a3543d

FROM ${PYTHON_IMAGE} AS dependencies
# cpu or cuda. The default index has the CUDA build; the CPU build comes from TORCH_INDEX or from WHEELS, and where
# neither has it, the larger CUDA build is taken.
ARG TORCH=cpu
# URL of the index for all else, in place of pip's default; empty: that.
ARG PIP_INDEX_URL=
# URL of a package index that has torch's builds (PyTorch's own does); empty: none.
ARG TORCH_INDEX=
# A folder of wheels in the build context, used before any index; its name begins with "wheels"; it may be missing.
ARG WHEELS=wheels

RUN python3 -m venv /opt/adder
ENV PATH=/opt/adder/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /build

# Only what these say, so that a changed line of code leaves this layer alone. The pattern makes the folder optional.
COPY requirements/core.txt requirements/torch-cpu.txt requirements/torch-cuda.txt ${WHEELS:-wheels}* ./
RUN install() { \
        pip install --only-binary :all: --no-deps --require-hashes \
            --find-links . ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} -r "torch-$1.txt" -r core.txt; \
    }; \
    install "$TORCH" \
    || { [ "$TORCH" = cpu ] && echo "no CPU build of torch: taking the one with CUDA" && install cuda; } \
    || { echo "TORCH=$TORCH: if torch was not found, name an index (TORCH_INDEX) or a folder (WHEELS) that has it"; exit 1; }

FROM dependencies AS source
COPY pyproject.toml setup.cfg README.md LICENSE adder_search.py ./
COPY model model/
COPY trainer trainer/
COPY search search/
COPY reports reports/
COPY gpu gpu/
COPY tracking tracking/
COPY own_modules own_modules/
COPY adders adders/
COPY compress compress/
COPY studies studies/
RUN pip wheel --no-deps --no-build-isolation --wheel-dir /wheel .

FROM ${PYTHON_IMAGE}
# The engine is built with a C++ compiler, for the CPU that it runs on.
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/*
# Drivers and what trains are adder; Ray's head, beside drivers, is another user, so that it cannot look into them.
# A new volume takes the owner of the folder that it is mounted on: so these exist, and are the user's.
RUN useradd --uid 1000 --create-home adder \
    && useradd --uid 1001 --gid adder --create-home ray \
    && install -d -o adder -g adder /var/lib/adder /var/lib/adder/home /var/lib/adder/artifacts /study
COPY --from=dependencies /opt/adder /opt/adder
ENV PATH=/opt/adder/bin:$PATH
COPY --from=source /wheel /wheel
RUN pip install --no-index --no-deps --no-cache-dir --disable-pip-version-check /wheel/*.whl && pip check
COPY docker/entrypoint.sh /usr/local/bin/adder-entrypoint
# Its mode is the checkout's, which may be its owner's alone; COPY --chmod is BuildKit's.
RUN chmod 755 /usr/local/bin/adder-entrypoint
ENV PYTHONUNBUFFERED=1 \
    ADDER_SEARCH_HOME=/var/lib/adder/home \
    RAY_USAGE_STATS_ENABLED=0 \
    MLFLOW_DISABLE_TELEMETRY=true
# adder, by number: where a pod's user must not be root, Kubernetes takes no name.
USER 1000:1000
WORKDIR /study
ENTRYPOINT ["adder-entrypoint"]
CMD ["adder-search", "--help"]
