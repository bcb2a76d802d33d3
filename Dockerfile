# Bakeoff with its dependencies, for batch systems and clusters: docker build -t bakeoff .
#
#   PYTHON     version of Python
#   EXTRAS     extras of the package, such as "data,modal"
#   PACKAGES   Debian packages: git for coding tasks, bubblewrap where containers may make namespaces
#
# A package index of your own is named as pip names it: --build-arg PIP_INDEX_URL=https://...; to build without
# any, put wheels into wheels/ and add --build-arg PIP_NO_INDEX=1 --build-arg PIP_FIND_LINKS=/source/wheels.
ARG PYTHON=3.13

FROM python:${PYTHON}-slim AS build
ARG EXTRAS=""
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_NO_INDEX
ARG PIP_FIND_LINKS
WORKDIR /source
COPY . .
RUN python -m venv --without-pip /opt/bakeoff \
 && pip --python /opt/bakeoff/bin/python install --no-cache-dir ".${EXTRAS:+[$EXTRAS]}"

FROM python:${PYTHON}-slim
ARG PACKAGES="git bubblewrap"
RUN if [ -n "$PACKAGES" ]; then \
      apt-get update && apt-get install --yes --no-install-recommends $PACKAGES && rm -rf /var/lib/apt/lists/*; \
    fi \
 && echo "bakeoff:x:1000:1000::/home/bakeoff:/bin/sh" >>/etc/passwd && echo "bakeoff:x:1000:" >>/etc/group \
 && install --directory --owner 1000 --group 1000 /home/bakeoff /work
COPY --from=build /opt/bakeoff /opt/bakeoff
ENV PATH=/opt/bakeoff/bin:$PATH PYTHONUNBUFFERED=1
USER bakeoff
WORKDIR /work
ENTRYPOINT ["bakeoff"]
CMD ["--help"]
