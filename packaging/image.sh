#!/bin/sh
# Build the image `clisup` from packaging/Containerfile with the builder that is here. BASE names another base image.
set -eu
cd "$(dirname "$0")/.."
ls dist/clisup-*.whl > /dev/null
for builder in podman docker buildah; do
    if command -v $builder > /dev/null && $builder info > /dev/null 2>&1; then
        exec $builder build ${BASE:+--build-arg "BASE=$BASE"} --tag clisup --file packaging/Containerfile .
    fi
done
echo "skipped: no container builder works here (podman, docker or buildah)"
