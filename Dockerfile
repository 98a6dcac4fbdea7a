# The package with pinned versions (scripts/pinned.txt), for training and the commands, without DeepSpeed:
#   docker build -t fairseq-posenc .
#   docker run --rm -it -v "$PWD:/work" fairseq-posenc fairseq-posenc schemes
FROM python:3.11.13-slim-bookworm
RUN apt-get update && apt-get install -y --no-install-recommends build-essential git procps && rm -rf /var/lib/apt/lists/*
COPY . /opt/fairseq_posenc
RUN bash /opt/fairseq_posenc/scripts/install_pinned.sh
WORKDIR /work
