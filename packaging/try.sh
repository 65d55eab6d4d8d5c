#!/bin/sh
# Install the wheel and the sdist of dist/ as users do, each into an empty home, and run the demo of each.
set -eu
cd "$(dirname "$0")/.."
tools=$(pwd)/.venv-release/bin
python=${PYTHON:-python3.11}
wheel=$(ls "$(pwd)"/dist/clisup-*.whl)
sdist=$(ls "$(pwd)"/dist/clisup-*.tar.gz)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT INT TERM

# try NAME: run the clisup that `$scratch/NAME/home` has, from a directory that is no checkout.
try() {
    name=$1
    clisup=$2
    (
        cd "$scratch"
        env -i HOME="$scratch/$name/home" PATH=/usr/bin:/bin "$clisup" version
        env -i HOME="$scratch/$name/home" PATH=/usr/bin:/bin "$clisup" demo < /dev/null > "$scratch/$name.log" 2>&1 || {
            cat "$scratch/$name.log"
            echo "$name: the demo failed" >&2
            exit 1
        }
    )
    echo "$name: works"
}

for kind in wheel sdist; do
    mkdir -p "$scratch/$kind/home"
    eval "file=\$$kind"
    "$python" -m venv "$scratch/$kind/venv"
    "$scratch/$kind/venv/bin/pip" install --quiet --disable-pip-version-check "$file"
    try "$kind" "$scratch/$kind/venv/bin/clisup"
done

# pip alone asks the package index, by its own configuration: pipx and uv take what it has brought.
"$python" -m pip download --quiet --disable-pip-version-check --require-hashes -r requirements/runtime.txt -d "$scratch/wheels"

mkdir -p "$scratch/pipx/home"
PIPX_HOME=$scratch/pipx/tools PIPX_BIN_DIR=$scratch/pipx/bin PIPX_MAN_DIR=$scratch/pipx/man \
    "$tools/pipx" install --quiet --python "$(command -v "$python")" --pip-args="--no-index --find-links=$scratch/wheels" "$wheel"
test -f "$scratch/pipx/man/man1/clisup-run.1"
try pipx "$scratch/pipx/bin/clisup"

mkdir -p "$scratch/uv/home"
UV_TOOL_DIR=$scratch/uv/tools UV_TOOL_BIN_DIR=$scratch/uv/bin UV_CACHE_DIR=$scratch/uv/cache UV_PYTHON_DOWNLOADS=never \
    "$tools/uv" tool install --quiet --offline --no-index --find-links "$scratch/wheels" --python "$(command -v "$python")" "$wheel"
try uv "$scratch/uv/bin/clisup"
