#!/bin/sh
# Install the Debian package of dist/ on this machine, look at all that it brings, run the demo, and remove it. Needs root.
set -eu
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo "skipped: installing a package needs root"; exit 0; }
deb=$(ls "$(pwd)"/dist/clisup_*.deb)
scratch=$(mktemp -d)
trap 'dpkg --purge clisup >/dev/null 2>&1 || true; rm -rf "$scratch"' EXIT INT TERM
dpkg --install "$deb"
cd "$scratch"
clisup=/usr/bin/clisup
env -i HOME="$scratch" PATH=/usr/bin:/bin $clisup version
env -i HOME="$scratch" PATH=/usr/bin:/bin $clisup demo < /dev/null > demo.log 2>&1 || { cat demo.log; exit 1; }
test -f /usr/share/man/man1/clisup-run.1.gz
test -f /usr/share/zsh/vendor-completions/_clisup
test -f /usr/share/fish/vendor_completions.d/clisup.fish
bash -n /usr/share/bash-completion/completions/clisup
grep -q '^ExecStart=/usr/bin/clisup serve' /usr/lib/systemd/user/clisup.service "/usr/lib/systemd/system/clisup@.service"
if command -v systemd-analyze > /dev/null; then
    systemd-analyze verify --man=no /usr/lib/systemd/system/clisup@root.service
    XDG_RUNTIME_DIR=$scratch systemd-analyze --user verify --man=no /usr/lib/systemd/user/clisup.service
fi
dpkg --purge clisup
if [ -e /usr/lib/clisup ] || [ -e /usr/bin/clisup ]; then
    echo "the package left files behind" >&2
    find /usr/lib/clisup >&2
    exit 1
fi
echo "deb: works"
