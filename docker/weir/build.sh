#!/bin/bash
# Builds a job's image from wheels: docker/weir/build.sh [TAG]. BASE = the base image (with Python of the minor version
# of PYTHON, and a JRE), DOCKER = the client, PYTHON = what makes the wheels.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
python=${PYTHON:-$root/.venv/bin/python}

context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
for each in pipeline sources sinks formats checkpoint pyspark_weir; do
    mkdir "$context/$each"
    (cd "$root/$each" && tar --exclude=__pycache__ -c .) | tar -C "$context/$each" -x
done
cp "$root"/{pyproject.toml,README.md,LICENSE} "$context/"
"$python" -m pip wheel --disable-pip-version-check --quiet --wheel-dir "$context/wheels" "$context[demo,http]"
mkdir "$context/dist"
mv "$context"/wheels/weir_streams-*.whl "$context/dist/"
cp "$root/docker/weir/Dockerfile" "$context/Dockerfile"
"${DOCKER:-docker}" build ${BASE:+--build-arg "BASE=$BASE"} --tag "${1:-weir:local}" "$context"
