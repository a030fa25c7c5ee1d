#!/bin/bash
# Builds the Kafka image: docker/kafka/build.sh [TAG]. BASE = the base image, DOCKER = the client, PYTHON = one that has
# Weir (its Ivy recipe fetches the jars, once).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${PYTHON:-$here/../../.venv/bin/python}

jars=$("$python" -c 'from pipeline.broker.jars import kafka_jars; print(kafka_jars())')
context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
mkdir "$context/jars"
cp "$jars"/*.jar "$context/jars/"
cp "$here/Dockerfile" "$here/run" "$here/log4j2.properties" "$context/"
"${DOCKER:-docker}" build ${BASE:+--build-arg "BASE=$BASE"} --tag "${1:-weir-kafka:local}" "$context"
