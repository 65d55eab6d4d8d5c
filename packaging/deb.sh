#!/bin/sh
# Build a Debian package from the wheel in dist/: a virtual environment below /usr/lib/clisup, units, manual pages and completions.
#
# The environment has the locked dependencies of requirements/runtime.txt, and belongs to the python3 of the Debian release on
# which it is built: the package depends on that minor version.
set -eu
cd "$(dirname "$0")/.."
python=/usr/bin/python3
builder=.venv/bin/python
wheel=$(ls dist/clisup-*.whl)
version=$(basename "$wheel" | cut -d- -f2)
arch=$(dpkg --print-architecture)
minor=$("$python" -c 'import sys; print(f"{sys.version_info[0]}.{sys.version_info[1]}")')
next=$("$python" -c 'import sys; print(f"{sys.version_info[0]}.{sys.version_info[1] + 1}")')
home=/usr/lib/clisup
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || date +%s)
export SOURCE_DATE_EPOCH
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT INT TERM
chmod 755 "$root"

"$python" -m venv --without-pip "$root$home"
"$builder" -m pip --python "$root$home/bin/python" install --quiet --disable-pip-version-check --no-compile --require-hashes \
    -r requirements/runtime.txt
"$builder" -m pip --python "$root$home/bin/python" install --quiet --disable-pip-version-check --no-compile --no-deps "$wheel"
find "$root$home/bin" -type f ! -name clisup -delete
rm -rf "$root$home/share" "$root$home/include"
rm -f "$root$home"/lib/python*/site-packages/clisup-*.dist-info/direct_url.json
grep -rlI "$root" "$root$home" | xargs -r sed -i "s#$root##g"
"$python" -m compileall -q -j0 -s "$root" -p / --invalidation-mode unchecked-hash "$root$home/lib"

mkdir -p "$root/usr/bin" "$root/usr/lib/systemd/system" "$root/usr/lib/systemd/user" "$root/usr/share/man/man1" \
    "$root/usr/share/doc/clisup" "$root/usr/share/bash-completion/completions" "$root/usr/share/zsh/vendor-completions" \
    "$root/usr/share/fish/vendor_completions.d" "$root/DEBIAN"
ln -s "$home/bin/clisup" "$root/usr/bin/clisup"
for unit in systemd/*; do
    case $unit in
    *@*) place=system ;;
    *) place=user ;;
    esac
    sed -E 's#^(Exec(Start|Reload)=)(%h/\.local/share|/opt)/clisup/bin/clisup#\1/usr/bin/clisup#' "$unit" \
        > "$root/usr/lib/systemd/$place/$(basename "$unit")"
done
for page in man/*.1; do
    gzip -9nc "$page" > "$root/usr/share/man/man1/$(basename "$page").gz"
done
for shell in bash zsh fish; do
    .venv/bin/clisup completion "$shell" > "$root/completion"
    case $shell in
    bash) mv "$root/completion" "$root/usr/share/bash-completion/completions/clisup" ;;
    zsh) { echo '#compdef clisup'; cat "$root/completion"; } > "$root/usr/share/zsh/vendor-completions/_clisup" && rm "$root/completion" ;;
    fish) mv "$root/completion" "$root/usr/share/fish/vendor_completions.d/clisup.fish" ;;
    esac
done
cp LICENSE "$root/usr/share/doc/clisup/copyright"
gzip -9nc CHANGELOG.md > "$root/usr/share/doc/clisup/changelog.gz"
sed -e "s/@VERSION@/$version/; s/@ARCH@/$arch/; s/@MINOR@/$minor/; s/@NEXT@/$next/" \
    -e "s/@SIZE@/$(du -sk "$root/usr" | cut -f1)/" packaging/debian/control.in > "$root/DEBIAN/control"
cp packaging/debian/postinst packaging/debian/prerm "$root/DEBIAN/"
cp packaging/debian/postinst "$root/DEBIAN/postrm"
chmod 755 "$root"/DEBIAN/p*
find "$root" -newermt "@$SOURCE_DATE_EPOCH" -exec touch -hd "@$SOURCE_DATE_EPOCH" {} +
dpkg-deb --root-owner-group -Zxz --build "$root" "dist/clisup_${version}-1_$arch.deb"
