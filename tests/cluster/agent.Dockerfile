# An agent in an image: tests/agents/clients with nothing but Python. Its folder is found by where the script is, so it can be mounted elsewhere.
ARG BASE_IMAGE=docker.io/library/python:3.11-slim-bookworm
FROM ${BASE_IMAGE}
COPY agent.py /opt/agent/agent.py
RUN printf '#!/bin/sh\nexec python3 -s "${0%%/*}/agent.py" "$@"\n' > /opt/agent/run && chmod 755 /opt/agent/run
