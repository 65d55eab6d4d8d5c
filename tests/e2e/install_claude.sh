#!/bin/sh
# Install the pinned real claude CLI for the e2e tests and print the path of its binary.
#
#   tests/e2e/install_claude.sh [DIR]        default DIR: .e2e/claude in the repository (git-ignored)
#
# The platform package holds a self-contained binary: npm is the downloader only, node never runs it.
# Does nothing when the binary is there already. Exit 1, with the reason, when it cannot install it.
set -eu

VERSION=2.1.329
PACKAGE="@anthropic-ai/claude-code-linux-x64"
SHA512="+n4lu1ubYAp02Y0X/MAUnxw9yY6SHHZ77F+IoW+V0wVoFuiI9opdH6gofjf14gXJCEYMTNpks7Gn1i8XZTKAWA=="

fail() {
    echo "cannot install claude $VERSION: $1" >&2
    exit 1
}

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
dir=${1:-$root/.e2e/claude}
mkdir -p "$dir"
dir=$(CDPATH='' cd -- "$dir" && pwd)
binary=$dir/package/claude

# the mark is written last, so a half-unpacked package is not taken for an installed one
if [ -x "$binary" ] && [ "$(cat "$dir/installed" 2>/dev/null)" = "$VERSION" ]; then
    echo "$binary"
    exit 0
fi

case $(uname -s)-$(uname -m) in
    Linux-x86_64) ;;
    *) fail "only the linux-x64 build is pinned, this is $(uname -s) $(uname -m)" ;;
esac
command -v npm >/dev/null || fail "npm is missing; on Debian: apt-get install --no-install-recommends npm"
command -v openssl >/dev/null || fail "openssl is missing; on Debian: apt-get install --no-install-recommends openssl"

work=$(mktemp -d "$dir/.download.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

(cd "$work" && npm pack --silent "$PACKAGE@$VERSION" >&2) || fail "npm pack $PACKAGE@$VERSION failed"
tarball=$(find "$work" -name '*.tgz')
[ -f "$tarball" ] || fail "npm pack left no tarball"
found=$(openssl dgst -sha512 -binary "$tarball" | openssl base64 -A)
[ "$found" = "$SHA512" ] || fail "integrity mismatch: expected sha512-$SHA512, got sha512-$found"

rm -rf "$dir/package" "$dir/installed"
tar -xzf "$tarball" -C "$dir"
chmod 755 "$binary"
echo "$VERSION" >"$dir/installed"
echo "$binary"
