"""Job whose prompt runs once, even if the job is killed and started again.

    python blocking_script.py BACKEND JOB PROMPT

The job's name makes the session's id and the prompt's key, so a second start finds what the first one began.
"""

import os
import sys
from uuid import NAMESPACE_URL, uuid5

from clisup.client.sync import Client
from clisup.errors import ClisupError


def main(backend: str, job: str, prompt: str) -> int:
    with Client.connect(name="blocking-script") as client:
        session = client.open(backend, os.getcwd(), session_id=str(uuid5(NAMESPACE_URL, job)), labels={"job": job})
        result = session.prompt(prompt, key=job)  # waits, also across restarts of the daemon
    if result.delivery == "uncertain":  # nobody knows whether the CLI received the prompt
        print(f"uncertain; the transcript says: {(result.evidence or {}).get('transcript')}", file=sys.stderr)
        return 75
    print(result.text)
    return 0 if result.outcome == "completed" else 1


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except ClisupError as error:
        sys.exit(f"{error.kind}: {error}")
