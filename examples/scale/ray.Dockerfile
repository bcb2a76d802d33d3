# Your suite in an image for Ray clusters: Ray's own, with Bakeoff and the suite. Every node and the driver run it.
#   docker build -f ray.Dockerfile -t registry.example.com/my-benchmark-ray:1 .
ARG RAY=2.56.1-py312
FROM rayproject/ray:${RAY}
RUN pip install --no-cache-dir bakeoff
COPY --chown=ray run-or-resume.sh suite.json /suite/
WORKDIR /suite
