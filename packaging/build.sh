#!/bin/sh
# Build the sdist, and the wheel from that sdist, into dist/. The times in both are those of the last commit.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || date +%s)
export SOURCE_DATE_EPOCH
rm -rf dist
"$python" -m hatchling build -t sdist
"$python" -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist dist/clisup-*.tar.gz
ls -l dist
