#!/bin/sh
# Collect a release in dist/, after build.sh and deb.sh: the SBOM, the CHANGELOG's section of this version, and the hashes of all.
# Nothing is uploaded.
set -eu
cd "$(dirname "$0")/.."
version=$(.venv/bin/python -c 'import clisup; print(clisup.__version__)')
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT INT TERM

.venv/bin/python -m venv --without-pip "$scratch/venv"
.venv/bin/python -m pip --python "$scratch/venv/bin/python" install --quiet --disable-pip-version-check --require-hashes \
    -r requirements/runtime.txt
.venv/bin/python -m pip --python "$scratch/venv/bin/python" install --quiet --disable-pip-version-check --no-deps dist/clisup-*.whl
.venv-release/bin/cyclonedx-py environment --output-reproducible --mc-type application --pyproject pyproject.toml \
    --output-file "dist/clisup-$version.cdx.json" "$scratch/venv/bin/python"
awk -v head="## $version" 'index($0, head) == 1 {on = 1; next} /^## / {on = 0} on' CHANGELOG.md > "dist/CHANGES-$version.md"
[ -s "dist/CHANGES-$version.md" ] || { echo "CHANGELOG.md has no section $version" >&2; exit 1; }
(cd dist && rm -f SHA256SUMS && sha256sum -- * > "$scratch/SHA256SUMS" && mv "$scratch/SHA256SUMS" SHA256SUMS)
(cd dist && sha256sum --check --quiet SHA256SUMS)
ls -l dist
