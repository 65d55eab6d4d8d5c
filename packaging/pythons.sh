#!/bin/sh
# Install the wheel of dist/ under each Python that clisup supports, and run the demo and the tests of the pure rules there.
#
# An interpreter comes from PATH or from pyenv. As root, one that is in neither comes from a Debian release that has it, in a
# directory of its own (debootstrap; the first time takes two minutes). TESTS="tests/llm ..." runs other tests.
set -eu
cd "$(dirname "$0")/.."
here=$(pwd)
tests=${TESTS:-tests/model tests/policy tests/config tests/wire tests/backends tests/client tests/keeper}
rooms=$here/.cache/pythons
mkdir -p "$rooms"
failed=

found() {
    if command -v "python$1" > /dev/null && "python$1" -c 'import ensurepip' 2> /dev/null; then
        command -v "python$1"
    else
        find "${PYENV_ROOT:-$HOME/.pyenv}/versions" -path "*/$1.*/bin/python$1" 2> /dev/null | sort -V | tail -1
    fi
}

# release MINOR: the Debian release whose own Python this is.
release() {
    case $1 in
    3.14) echo forky ;;
    3.13) echo trixie ;;
    3.11) echo bookworm ;;
    esac
}

# in_room ROOM COMMAND...: run a command in a room of Debian, which sees the checkout as /src.
in_room() {
    room=$1
    shift
    unshare --mount sh -c '
        mount --bind "$1" "$2/src" && mount -t proc proc "$2/proc" && mount --rbind /dev "$2/dev" && mount -t tmpfs tmp "$2/tmp"
        room=$2; shift 2; exec chroot "$room" "$@"' sh "$here" "$room" "$@"
}

room_of() {
    name=$(release "$1")
    room=$rooms/$name
    if [ -z "$name" ] || [ "$(id -u)" != 0 ] || ! command -v debootstrap > /dev/null; then
        return 1
    fi
    if [ ! -x "$room/usr/bin/python$1" ]; then
        rm -rf "$room"
        mirror=$(apt-get indextargets --format '$(SITE)' | head -1)
        # debootstrap has one script for all current releases; an older debootstrap knows not every name.
        debootstrap --variant=minbase --include="python$1,python$1-venv,git,procps" \
            "$name" "$room" "$mirror" /usr/share/debootstrap/scripts/sid > "$rooms/$name.log" 2>&1 || {
            tail -5 "$rooms/$name.log" >&2
            return 1
        }
        mkdir -p "$room/src"
        ln -sf "python$1" "$room/usr/bin/python3"
    fi
}

for minor in ${PYTHONS:-3.11 3.12 3.13 3.14}; do
    python=$(found $minor)
    venv=$rooms/venv-$minor
    rm -rf "$venv"
    if [ -n "$python" ]; then
        run=env
        "$python" -m venv "$venv"
        "$venv/bin/pip" install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
        "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps dist/clisup-*.whl
        source=$here
    elif room_of $minor; then
        run="in_room $room"
        source=/src
        python3.11 -m pip download --quiet --disable-pip-version-check --only-binary :all: --python-version "$minor" \
            --require-hashes -r requirements/dev.txt -d "$rooms/wheels-$minor"
        venv=/src/.cache/pythons/venv-$minor
        $run "/usr/bin/python$minor" -m venv "$venv"
        $run "$venv/bin/pip" install --quiet --no-index --find-links "/src/.cache/pythons/wheels-$minor" -r /src/requirements/dev.txt
        $run sh -c "$venv/bin/pip install --quiet --no-index --no-deps /src/dist/clisup-*.whl"
    else
        echo "python $minor: not found here, not tried"
        continue
    fi
    version=$($run "$venv/bin/python" -c 'import platform; print(platform.python_version())')
    # The demo runs the wheel; the tests run a copy of the checkout, so that no two versions share byte code.
    copy=$rooms/tests-$minor
    rm -rf "$copy"
    mkdir -p "$copy"
    git archive HEAD | tar -x -C "$copy"
    if $run sh -c "cd /tmp && HOME=/tmp/home $venv/bin/clisup demo < /dev/null > /tmp/demo.log 2>&1 || { cat /tmp/demo.log; exit 1; }" &&
        $run sh -c "cd $source/.cache/pythons/tests-$minor && $venv/bin/python -m pytest -p no:cacheprovider -m 'not e2e and not long' $tests"; then
        echo "python $version: works"
    else
        echo "python $version: FAILED"
        failed="$failed $minor"
    fi
done
[ -z "$failed" ] || exit 1
