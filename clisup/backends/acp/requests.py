"""Requests of an ACP agent to its client. Permissions and elicitations become approvals, all others are refused at once."""

from __future__ import annotations

import json
from collections.abc import Sequence

from msgspec.structs import replace

from clisup.backends.acp.dialect import AcpDialect
from clisup.backends.acp.updates import Updates
from clisup.backends.approvals import ApprovalAnswer, Questions, answers_by_place, refuse_other_input
from clisup.backends.base import Decoded
from clisup.backends.elicitation import answer_to_elicitation, elicitation_input, elicitation_tool
from clisup.backends.frames import Frame, MalformedError, get_dict, get_dicts, get_str, too_deep
from clisup.backends.lines import unparsed
from clisup.errors import UsageError
from clisup.model.events import BackendStatus, EventBase
from clisup.model.lines.framing import Line
from clisup.policy.approval_options import ApprovalOption, needs_choice, options_of

__all__ = ["AgentRequests"]

_METHOD_NOT_FOUND = -32601
_INVALID_PARAMS = -32602
_CANCELLED = -32800
_LARGEST_ID = 2**63

RequestId = int | str | None


class AgentRequests:
    """Requests of the agent in one turn."""

    def __init__(self, dialect: AcpDialect, updates: Updates, run: int) -> None:
        self._dialect = dialect
        self._updates = updates
        self.questions = Questions(run)

    def answer(self, approval_id: str, answer: ApprovalAnswer) -> str | None:
        """Return the answer to an open request in the agent's protocol."""
        return self.questions.answer(approval_id, answer)

    def close(self) -> list[EventBase]:
        """Close all open requests: the agent waits for none of them."""
        return self.questions.close()

    def take(self, frame: Frame, method: str, line: Line) -> Decoded:
        """Return the approval of a request, or the refusal. Raises MalformedError for an id without a valid answer."""
        number = frame["id"]
        if isinstance(number, bool) or not isinstance(number, int | str | None):
            raise MalformedError("an id that is none")
        if isinstance(number, int) and abs(number) > _LARGEST_ID:
            raise MalformedError("an id that JSON readers cannot keep")
        ask = {"session/request_permission": self._permission, "elicitation/create": self._elicitation}.get(method)
        if ask is None:
            event = BackendStatus(status="request_refused", detail=method[:200])
            return Decoded(
                (event,), replies=(_error(number, _METHOD_NOT_FOUND, f'"Method not found": {method[:200]}'),)
            )
        events = None if too_deep(line.data, frame) else ask(number, get_dict(frame, "params"))
        if events is None:
            refusal = _error(number, _INVALID_PARAMS, f"cannot read this {method}")
            return replace(unparsed(line, "malformed"), replies=(refusal,))
        return Decoded(events)

    def _permission(self, number: RequestId, params: Frame) -> list[EventBase] | None:
        call = get_dict(params, "toolCall")
        if not get_str(call, "toolCallId"):
            return None
        told, use, title = self._updates.asked(call)
        offered = tuple(option for option in get_dicts(params, "options") if isinstance(option.get("optionId"), str))
        options = options_of(offered)
        questions = self._dialect.questions(call)

        def word(answer: ApprovalAnswer) -> str:
            if questions is None:
                refuse_other_input(answer, "the Agent Client Protocol has no way to")
            asked = questions is not None and answer.decision == "allow"
            answers = {"answers": answers_by_place(questions or (), answer)} if asked else {}
            return _result(number, {"outcome": _outcome(options, answer), **answers})

        question = self.questions.ask(
            number, word, tool_name=use.name, input=use.input, suggestions=offered, tool_use_id=use.tool_use_id,
            reason=title,
        )  # fmt: skip
        return [*told, question]

    def _elicitation(self, number: RequestId, params: Frame) -> list[EventBase] | None:
        mode, url = get_str(params, "mode"), get_str(params, "url")
        if mode not in ("form", "url") or (mode == "url" and not url):
            return None
        asked = elicitation_input(
            get_str(params, "message"), schema=params.get("requestedSchema"), url=url if mode == "url" else None
        )

        def word(answer: ApprovalAnswer) -> str:
            return _result(number, answer_to_elicitation(asked, answer))

        call = get_str(params, "toolCallId") or None
        told = self._updates.announce(call) if call else []
        return [*told, self.questions.ask(number, word, tool_name=elicitation_tool(), input=asked, tool_use_id=call)]

    def withdraw(self, params: Frame) -> Decoded:
        """Close the request of `$/cancel_request`, and answer it, as the protocol demands.

        An interrupt of the turn may have answered the request already. An agent drops the second answer.
        """
        number = params.get("requestId")
        if isinstance(number, bool) or not isinstance(number, int | str):
            raise MalformedError("an id that is none")
        events = self.questions.withdraw(number)
        return Decoded(events, replies=(_error(number, _CANCELLED, "cancelled"),) if events else ())


_KINDS: dict[tuple[str, bool], tuple[str, ...]] = {
    ("allow", False): ("allow_once",),  # nothing permanent without a request for it
    ("allow", True): ("allow_always", "allow_once"),
    ("deny", False): ("reject_once", "reject_always"),
    ("deny", True): ("reject_always", "reject_once"),
}
"""Kinds of options for each answer, the best first."""


def _outcome(options: Sequence[ApprovalOption], answer: ApprovalAnswer) -> Frame:
    """Return the answer as the agent's option. Without an option to refuse, a refusal is `cancelled`.

    Raises `UsageError`: `unsupported` if the agent offers no such answer, `option_needed` if it offers several.
    """
    if answer.decision == "cancelled":
        return {"outcome": "cancelled"}
    if answer.option is not None:
        return _selected(_named(options, answer))
    if answer.decision == "allow" and needs_choice(options) and not answer.remember:
        raise UsageError(
            "cannot allow this tool call without an option, because the agent offers several",
            kind="option_needed",
            hint=f"name the option: {_listed(options)}",
        )
    for kind in _KINDS[answer.decision, answer.remember]:
        for option in options:
            if option.kind == kind:
                return _selected(option)
    if answer.decision == "deny":
        return {"outcome": "cancelled"}
    raise UsageError(
        "cannot allow this tool call, because the agent does not offer that",
        kind="unsupported",
        hint=f"the agent offers: {_listed(options)}",
    )


def _named(options: Sequence[ApprovalOption], answer: ApprovalAnswer) -> ApprovalOption:
    """Return the option of an answer. Raises `UsageError` if the agent has no such option, or one of the other decision."""
    option = next((option for option in options if option.id == answer.option), None)
    if option is None:
        raise UsageError(
            "cannot answer this approval, because the agent has no such option",
            kind="invalid_params",
            param="option",
            hint=f"the agent offers: {_listed(options)}",
        )
    if option.has_known_kind and option.decision != answer.decision:
        raise UsageError(
            f"cannot answer this approval, because the option is one to {option.decision}, and the decision is not",
            kind="invalid_params",
            param="option",
            hint=f"give the decision {option.decision}",
        )
    return option


def _selected(option: ApprovalOption) -> Frame:
    return {"outcome": "selected", "optionId": option.id}


def _listed(options: Sequence[ApprovalOption]) -> str:
    return ", ".join(f"{option.id[:80]} ({option.label[:80]})" for option in options) or "nothing but a refusal"


def _result(number: RequestId, result: Frame) -> str:
    return _line({"id": number, "result": result})


def _error(number: RequestId, code: int, message: str) -> str:
    return _line({"id": number, "error": {"code": code, "message": message}})


def _line(body: Frame) -> str:
    return json.dumps({"jsonrpc": "2.0", **body}) + "\n"
