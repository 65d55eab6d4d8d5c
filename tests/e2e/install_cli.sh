#!/bin/sh
# Install one pinned CLI for the e2e tests:  tests/e2e/install_cli.sh NAME [DIRECTORY]
#
# What is installed stands in package.json and package-lock.json (versions and integrity hashes) of DIRECTORY, which is
# tests/e2e/clis/NAME by default. Where it goes is .e2e/NAME (git-ignored). No script of a package is run. Does nothing where this very lock is installed already.
set -eu

name=$1
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
source=$root/${2:-tests/e2e/clis/$name}
target=$root/.e2e/$name

fail() {
    echo "cannot install $name: $1" >&2
    exit 1
}

[ -f "$source/package-lock.json" ] || fail "there is no $source/package-lock.json"
case $(uname -s)-$(uname -m) in
    Linux-x86_64) ;;
    *) fail "only linux-x64 is pinned, this is $(uname -s) $(uname -m)" ;;
esac
command -v npm >/dev/null || fail "npm is missing; on Debian: apt-get install --no-install-recommends npm"

# the mark is written last, so a half-installed tree is not taken for an installed one
if cmp -s "$source/package-lock.json" "$target/installed"; then exit 0; fi

mkdir -p "$target"
rm -rf "$target/installed" "$target/node_modules"
cp "$source/package.json" "$source/package-lock.json" "$target/"
if [ -f "$source/.npmrc" ]; then cp "$source/.npmrc" "$target/"; fi
(cd "$target" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >&2) || fail "npm ci failed"
cp "$source/package-lock.json" "$target/installed"
