# The relay: the built wheel and its locked dependencies, nothing else of this repository.
FROM python:3.13-slim AS build
WORKDIR /source
RUN python -m venv --without-pip /opt/relay && python -m venv --without-pip /opt/hatch
# What changes seldom has layers of its own. Every download is checked against its hash.
COPY requirements/ requirements/
RUN pip --python /opt/relay/bin/python install --no-cache-dir --no-input --require-hashes -r requirements/runtime.txt
RUN pip --python /opt/hatch/bin/python install --no-cache-dir --no-input --require-hashes -r requirements/build.txt
COPY . .
RUN pip --python /opt/hatch/bin/python wheel --no-cache-dir --no-input --no-deps --no-build-isolation --wheel-dir /wheel . \
 && pip --python /opt/relay/bin/python install --no-cache-dir --no-input --no-deps --no-index /wheel/*.whl

FROM python:3.13-slim
LABEL org.opencontainers.image.title="outbox-relay" \
      org.opencontainers.image.description="Rows that an application inserts in PostgreSQL become confirmed RabbitMQ messages." \
      org.opencontainers.image.licenses="Apache-2.0"
COPY docker/probe.py /opt/probe.py
COPY --from=build /opt/relay /opt/relay
# 0.0.0.0, because probes and scrapes come from outside of the container; publish the port on loopback or not at all.
ENV PATH=/opt/relay/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    RELAY_HTTP_HOST=0.0.0.0 \
    RELAY_HTTP_PORT=8080
# A number, so that an orchestrator can see that it is not root; it owns nothing, and the file system may be read-only.
USER 10001:10001
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 CMD ["python", "-IS", "/opt/probe.py", "/livez"]
ENTRYPOINT ["relay"]
CMD ["run"]
