"""Who may ask the gateway: token, Host and Origin; settings that are refused; and what the log and the metrics tell."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest
from gateway_kit import CHAT, MESSAGES, RESPONSES, Served
from harness import PATIENCE_S

Start = Callable[..., Served]
SECRET = "plum-in-a-prompt"


def test_every_path_needs_the_token(gateway: Start) -> None:
    served = gateway()
    for path in (CHAT, RESPONSES, MESSAGES, "/v1/models", "/metrics", "/nothing"):
        method = "GET" if path in ("/v1/models", "/metrics", "/nothing") else "POST"
        for wrong in (
            "",
            "Bearer",
            "Bearer wrong",
            f"Basic {served.token}",
            f"Bearer {served.token}x",
            "Bearer \u00e9",
        ):
            status, body, _ = served.send(method, path, Authorization=wrong)
            assert status == 401, (path, wrong)
            assert served.token not in str(body)
    assert served.send("GET", "/v1/models", Authorization="", x_api_key=served.token)[0] == 200


def test_another_host_or_origin_is_refused_with_the_right_token(gateway: Start) -> None:
    served = gateway()
    assert served.send("GET", "/v1/models", Host=f"localhost:{served.port}")[0] == 200
    for host in ("evil.example", f"evil.example:{served.port}", "127.0.0.1", f"127.0.0.1:{served.port + 1}"):
        assert served.send("POST", CHAT, served.chat("Hello."), Host=host)[0] == 403
    for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": f"http://127.0.0.1:{served.port + 1}"},
                    {"Sec_Fetch_Site": "cross-site"}, {"Sec_Fetch_Site": "same-site"}):  # fmt: skip
        assert served.send("POST", CHAT, served.chat("Hello."), **headers)[0] == 403
    assert not served.daemon.call("session/list")["sessions"]


def test_no_answer_permits_another_site_to_read_it(gateway: Start) -> None:
    served = gateway()
    status, _, headers = served.send(
        "OPTIONS", CHAT, Origin="http://evil.example", Access_Control_Request_Method="POST"
    )
    assert status == 403 and not any(name.startswith("access-control") for name in headers)


def test_the_token_is_private_and_stays(gateway: Start) -> None:
    served = gateway()
    path = served.root / "client-state" / "gateway" / "token"
    assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o777 == 0o700
    before = served.token
    served.kill()
    served.start()
    assert served.token == before and len(before) > 40


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--bind", "0.0.0.0"), "without TLS"),
        (("--tls-cert", "/tmp/a.pem"), "needs its key"),
        (("--url", "ftp://x"), "none of a page"),
    ],
)
def test_settings_that_would_show_the_token_are_refused(gateway: Start, flags: tuple[str, ...], words: str) -> None:
    served = gateway()
    ended = subprocess.run(served.command(*flags), env=served.env, capture_output=True, text=True, timeout=PATIENCE_S)
    assert ended.returncode == 2 and words in ended.stderr


def test_a_gateway_without_backends_does_not_start(gateway: Start) -> None:
    served = gateway()
    served.configure(backends=[])
    ended = subprocess.run(served.command(), env=served.env, capture_output=True, text=True, timeout=PATIENCE_S)
    assert ended.returncode == 78 and "[gateway] backends" in ended.stderr


def test_only_named_backends_serve_and_a_subscription_needs_its_own_word(gateway: Start) -> None:
    served = gateway(
        backends=["demo", "claude", "codex", "nothing"], daemon={"raw": '[backends.claude]\ncommand = ["/bin/true"]'}
    )
    assert served.send("POST", CHAT, served.chat("Hello.", model="gemini"))[0] == 404
    assert served.send("POST", CHAT, served.chat("Hello.", model="nothing"))[0] == 404
    status, body, _ = served.send("POST", CHAT, served.chat("Hello.", model="claude/opus"))
    assert status == 403 and "allow_subscription" in body["error"]["message"]
    assert "https://code.claude.com/docs/en/legal-and-compliance" in body["error"]["message"]


def test_a_cli_whose_tools_cannot_be_switched_off_needs_the_operators_word(gateway: Start) -> None:
    raw = '[backends.qwen]\ncommand = ["/bin/true"]\nenv = { OPENAI_API_KEY = "k", OPENAI_MODEL = "m" }'
    served = gateway(backends=["qwen"], daemon={"raw": raw})
    status, body, _ = served.send("POST", CHAT, served.chat("Hello.", model="qwen"))
    assert status == 403 and "cli_tools" in body["error"]["message"]


def test_the_clis_own_tools_are_off_by_default(gateway: Start) -> None:
    served = gateway()
    session = served.send("POST", CHAT, served.chat("Hello."), Idempotency_Key="argv")[2]["x-clisup-session"]
    page = served.daemon.call("session/events", session_id=session, types=["process_started"])
    assert "--tools=" in page["events"][0]["argv"]


def test_the_log_and_the_metrics_name_requests_and_hold_no_text(gateway: Start) -> None:
    served = gateway()
    assert served.send("POST", CHAT, served.chat(SECRET))[0] == 200
    assert served.send("POST", CHAT, served.chat(f"{SECRET}\n@error overloaded"))[0] == 503
    assert served.send("POST", CHAT, served.chat(SECRET, model=SECRET))[0] == 404
    text = served.send("GET", "/metrics")[1]
    labels = 'model="demo",path="/v1/chat/completions"'
    assert f'clisup_gateway_requests_total{{{labels},status="200"}} 1.0' in text
    assert 'clisup_gateway_errors_total{kind="overloaded",model="demo"} 1.0' in text
    assert f"clisup_gateway_request_seconds_count{{{labels}}} 2.0" in text
    assert "POST /v1/chat/completions 503" in served.log()
    assert SECRET not in served.log() + text and served.token not in served.log()
