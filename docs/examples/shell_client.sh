#!/usr/bin/env bash
# Send a prompt and show its events:  shell_client.sh BACKEND PROMPT     (needs bash and OpenBSD's nc)
# This program chooses the session's id and the prompt's key, so that a repeated request does nothing twice.
set -uo pipefail
backend=$1 prompt=$2
socket=${CLISUP_SOCKET:-$(clisup socket)} || exit
session=$(</proc/sys/kernel/random/uuid)
seq=0 # cursor: the last seq received

quoted() { # text -> JSON string
  local text=${1//\\/\\\\}
  text=${text//\"/\\\"} text=${text//$'\n'/\\n} text=${text//$'\t'/\\t}
  printf '"%s"' "$text"
}

field() { # value of a field in a line of JSON; quotes within texts are escaped, so they cannot match
  [[ $1 =~ \"$2\":\ *(\"(([^\"\\]|\\.)*)\"|[a-z0-9.]+) ]] || return
  [[ ${BASH_REMATCH[1]} == \"* ]] && printf '%b' "${BASH_REMATCH[2]//\\\"/\"}" || printf '%s' "${BASH_REMATCH[1]}"
}

call() { # METHOD PARAMS: a connection for each attempt, until an answer arrives
  local answer tries
  for ((tries = 0; tries < 300; tries++)); do
    answer=$(nc -NU "$socket" 2>/dev/null <<<"{\"id\":1,\"method\":\"$1\",\"params\":$2}")
    [[ $answer == *'"result":'* ]] && return
    ((tries == 10)) && echo "no answer at $socket: trying for half a minute" >&2
    [[ $(field "$answer" retryable) == false ]] && { field "$answer" message >&2 && echo >&2; return 1; }
    sleep 0.1
  done
  return 3
}

call session/new "{\"backend\":$(quoted "$backend"),\"cwd\":$(quoted "$PWD"),\"session_id\":\"$session\"}" || exit
call session/prompt "{\"session_id\":\"$session\",\"prompt\":$(quoted "$prompt"),\"key\":\"$session\"}" || exit

for ((tries = 0; tries < 300; tries++)); do
  exec 3< <(exec nc -U "$socket" 2>/dev/null \
    <<<"{\"id\":1,\"method\":\"session/subscribe\",\"params\":{\"session_id\":\"$session\",\"after_seq\":$seq}}")
  listener=$!
  while IFS= read -r line <&3; do
    [[ $(field "$line" method) == session/event ]] || continue
    tries=0 seq=$(field "$line" seq)
    case $(field "$line" type) in
      content_delta) [[ $(field "$line" kind) == text ]] && field "$line" text ;;
      tool_use) printf '\n[%s]\n' "$(field "$line" name)" ;;
      approval_requested)
        read -r -p "allow $(field "$line" tool_name)? [y/N] " word
        [[ $word == y ]] && decision=allow || decision=deny
        call approval/respond "{\"session_id\":\"$session\",\"approval_id\":\"$(field "$line" approval_id)\",\"decision\":\"$decision\"}"
        ;;
      turn_completed)
        outcome=$(field "$line" outcome)
        printf '\n[%s]\n' "$outcome"
        kill "$listener"
        [[ $outcome == completed ]]
        exit
        ;;
    esac
  done
  sleep 0.1 # the daemon restarts
done
echo "the daemon does not come back" >&2
exit 3
