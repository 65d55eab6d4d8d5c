"""A key that systemd passes as a credential: the CLI has it, also after a restart in place, and it lies nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest
from service import CONFIG, Service, drop_in, reload_units, write_config

KEY = "a-key-that-nobody-else-has-7f3b"
CHECK = '@bash test "$DEMO_KEY" = "$(cat {key})" && echo the same'


@pytest.mark.parametrize("running", ["user", "nobody"], indirect=True, scope="module")
def test_a_credential_is_a_variable_of_the_cli_and_of_nobody_else(service: Service) -> None:
    service.stop()
    key = service.lab.root / "key"
    key.write_text(f"{KEY}\n")
    key.chmod(0o600)
    expected = service.lab.root / "work" / "expected"  # of the test's own, for the tool to compare with
    expected.write_text(KEY)
    write_config(service.home, CONFIG + 'env_files = { DEMO_KEY = "credential:demo-key" }\n')
    extra = drop_in(service.lab, service.kind.manager, service.unit, f"LoadCredential=demo-key:{key}\n", "extra")
    reload_units(service.lab)
    try:
        service.start()
        assert "the same" in told(service, expected)
        key.write_text("gone")  # what a start has read is what a restart in place goes on with
        key.unlink()
        service.clisup("daemon", "restart")
        assert "the same" in told(service, expected)
        assert KEY.encode() not in Path(f"/proc/{service.processes()[0]}/environ").read_bytes()
        found = [path for path in service.state.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]
        assert not found
        assert KEY not in service.said()
    finally:
        write_config(service.home, CONFIG)
        extra.unlink()
        reload_units(service.lab)


def told(service: Service, expected: Path) -> str:
    session = service.new()
    turn = session.ask(CHECK.format(key=expected))["turn_id"]
    return str(session.events("tool_result", turn_id=turn)[-1]["content"])
