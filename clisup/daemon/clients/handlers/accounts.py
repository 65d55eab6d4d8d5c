"""Handlers of the `account/...` methods, with which the boxes of a fleet share the rate limits of their accounts."""

from __future__ import annotations

from clisup.daemon.clients.connection import Connection, Handlers
from clisup.daemon.sessions.registry import Manager
from clisup.errors import UsageError
from clisup.policy.rate_limit import AccountLimit
from clisup.wire.params import AccountReportParams, Empty
from clisup.wire.results import AccountListResult, Done, SharedAccount

__all__ = ["AccountHandlers"]


class AccountHandlers:
    def __init__(self, manager: Manager) -> None:
        self._accounts = manager.services.accounts

    def table(self) -> Handlers:
        return {"account/list": self.list, "account/report": self.report}

    async def list(self, connection: Connection, params: Empty) -> bytes:
        rows = [
            SharedAccount(account=name, limit=account.limit, **account.places())
            for name, account in self._accounts.shared.items()
        ]
        return AccountListResult(accounts=rows, limit_hold_s=self._accounts.hold_s).to_json()

    async def report(self, connection: Connection, params: AccountReportParams) -> bytes:
        if (account := self._accounts.shared.get(params.account)) is None:
            raise UsageError(
                f"no backend has the account {params.account!r}",
                kind="invalid_params",
                hint="set `account` in a table [backends.NAME] of the configuration",
            )
        limit = AccountLimit(**params.limit.model_dump()) if params.limit is not None else None
        account.learn(limit, elsewhere=params.probe == "elsewhere")
        return Done().to_json()
