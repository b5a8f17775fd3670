# The pod image: what runs beside agents. From the folder that holds uv.lock:
#
#   docker build -f charts/orchestrate/image/pod.Dockerfile -t REGISTRY/orchestrate-pod:VERSION .
#
# BASE_IMAGE is a Debian with Python 3.11 or later as `python3`. Nothing of it is in the image but the interpreter, the modules that our
# programs import, and the libraries that these need: no shell, no package manager.
ARG BASE_IMAGE=docker.io/library/python:3.11-slim-bookworm

FROM ${BASE_IMAGE} AS files
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends gcc libc6-dev
COPY orchestrator/sandbox/pod/supervisor.c /src/supervisor.c
RUN cc -std=gnu11 -Os -static -s -Wall -Wextra -Werror -o /src/supervisor /src/supervisor.c
COPY orchestrator /src/orchestrator
COPY charts/orchestrate/image/pod_files.py /src/pod_files.py
RUN python3 /src/pod_files.py /src /out

FROM scratch
COPY --from=files /out /
USER 64000:64000
WORKDIR /
CMD ["/opt/orchestrate/bin/canary"]
