"""Entry point, as a plain file under -I -S and as `python -m tests.fakecli`."""

import sys

if not __package__:
    sys.path.append(__file__.rpartition("/tests/fakecli/")[0])

from clisup.demo import app, directives, live
from clisup.demo.turn import DemoSession
from tests.fakecli.arguments import parse_strictly
from tests.fakecli.directives import MORE, add_prompt

if __name__ == "__main__":
    directives.DIRECTIVES.update(MORE)
    live.CONTROLS["set_max_thinking_tokens"] = lambda process, request: None
    app.parse_arguments = parse_strictly
    DemoSession.add_prompt = add_prompt  # type: ignore[method-assign]
    app.main(sys.argv[1:])
