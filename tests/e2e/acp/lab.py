"""Any ACP agent of tests/e2e/acp/agents.py behind a daemon, in front of the fake of its API."""

from __future__ import annotations

from tests.e2e.acp.agent import Agent, Run
from tests.e2e.lab import ROOT, Lab

STARTUP_S = 300  # opencode takes 4 s of processor time to its first session, and a runner may be busy


class AgentLab(Lab):
    """`[backends.agent]`: kind acp, live, with the agent's own command and variables."""

    backend = "agent"
    asked_by_others = True
    """Agents ask the model for titles, suggestions and checks beside the turn, and report no tokens of them (qwen 0.24.4, opencode
    1.18.34, claude-agent-acp 0.101.0); gemini 0.61.0 leaves its thoughts out of its report."""

    def __init__(self, agent: Agent, run: Run, *, config: str = "") -> None:
        super().__init__()
        self.api = agent.api(run.scenario).__enter__()
        self.configure(
            command=agent.command(ROOT / ".e2e"),
            env=agent.environment(run, self.api.url, self.home),
            extra=f'kind = "acp"\nmode = "live"\ntimeouts = {{ startup = {STARTUP_S} }}\n{config}',
        )

    def close_fakes(self) -> None:
        self.api.close()
