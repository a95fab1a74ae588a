# tune-framework with the CPU builds of both frameworks.
#
#   docker build -t tune-framework .
#   docker run --rm -v "$PWD/study:/study" tune-framework --model resnet50 --out /study
#
# To tune inside the image that you deploy, install the package there instead (docs/pipelines.md).
FROM python:3.11-slim

# pip takes the CPU build of PyTorch from this index, if yours has none: --build-arg TORCH_INDEX=URL
ARG TORCH_INDEX=""
ARG FRAMEWORKS="torch,tensorflow"

# allocators and OpenMP runtimes that a study may preload; g++ is for torch.compile
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ libjemalloc2 libnuma1 libomp5 libtcmalloc-minimal4 \
    && rm -rf /var/lib/apt/lists/*

COPY . /src
RUN pip install --no-cache-dir ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} \
    -c /src/constraints.txt "/src[$FRAMEWORKS]"

RUN useradd --create-home tuner
USER tuner
WORKDIR /home/tuner
ENTRYPOINT ["tune-framework"]
CMD ["--help"]
