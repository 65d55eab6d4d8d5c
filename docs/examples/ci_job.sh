#!/usr/bin/env bash
# One prompt in a CI job: a daemon of the job's own, answer and events as artefacts, and nothing left behind.
#   ci_job.sh BACKEND PROMPT [ARTEFACTS]
set -euo pipefail
backend=$1 prompt=$2 artefacts=${3:-artefacts}
mkdir -p "$artefacts"

place=$(mktemp -d) # a socket and a state directory that no other job shares
export CLISUP_SOCKET=$place/sock CLISUP_STATE_DIR=$place/state
clisup serve --log-format json 2> "$artefacts/clisup.log" &
daemon=$!

leave() { # however the job ends, also where CI cancels it by a signal
  clisup stop --mode kill > /dev/null 2>&1 || true # ends the CLI, its tools and what they started
  wait "$daemon" || true
  rm -rf "$place"
}
trap leave EXIT
trap 'exit 143' TERM
trap 'exit 130' INT

for _ in $(seq 300); do # up to 30 s; a daemon that cannot start says why in clisup.log
  clisup status > /dev/null 2>&1 && break
  kill -0 "$daemon" 2> /dev/null || break
  sleep 0.1
done

set -m # in the background and waited for: bash runs its traps only then; and the turn can be told to stop by SIGINT
timeout --signal=INT --kill-after=60 "${CI_TIMEOUT:-20m}" \
  clisup run -b "$backend" --json "$prompt" > "$artefacts/events.jsonl" &
code=0
wait "$!" || code=$?

jq -r 'select(.type == "turn_completed") | .text' "$artefacts/events.jsonl" > "$artefacts/answer.txt"
clisup status --json > "$artefacts/status.json" || true
exit "$code"
