"""Approval requests of `codex app-server`, and the answers in codex's words (0.169.0).

With the policy `on-request`, codex asks for four things: a command outside the sandbox, a patch outside the directory, more
permissions, and a tool of an MCP server (an elicitation with its own mark). codex remembers an answer for its process, which lives
for one turn. An MCP server asks its user by the other elicitations, the model by the tool `request_user_input`.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from typing import NamedTuple

from clisup.backends.approvals import ApprovalAnswer, Questions, refuse_other_input, refuse_rule
from clisup.backends.codex.calls import Calls
from clisup.backends.elicitation import answer_to_elicitation, elicitation_input, elicitation_tool
from clisup.backends.frames import Frame, get_dict, get_dicts, get_str
from clisup.errors import UsageError
from clisup.model.events import ApprovalRequested

__all__ = ["ask"]

_SHELLS = frozenset({"bash", "sh", "zsh", "dash"})
_ONCE: dict[str, str] = {"allow": "accept", "deny": "decline"}


class _Question(NamedTuple):
    tool: str
    input: Frame
    answer: Callable[[ApprovalAnswer], Frame]
    suggestions: tuple[Frame, ...] = ()
    takes_input: bool = False


def ask(questions: Questions, calls: Calls, method: str, asked: str | int, params: Frame) -> ApprovalRequested | None:
    """Return the approval of a request, or None for another request. Raises `MalformedError` or `ValueError` for a broken one."""
    make = _METHODS.get(method)
    question = make(params, calls) if make is not None else None
    if question is None:
        return None

    def word(answer: ApprovalAnswer) -> str | None:
        if answer.decision == "cancelled":
            return None  # turn/interrupt ends the question with the turn
        if not question.takes_input:
            refuse_other_input(answer, "codex takes no other one")
        return json.dumps({"id": asked, "result": question.answer(answer)}, ensure_ascii=True) + "\n"

    return questions.ask(
        asked,
        word,
        tool_name=question.tool,
        input=question.input,
        suggestions=question.suggestions,
        tool_use_id=get_str(params, "itemId"),
        reason=None if question.takes_input else get_str(params, "reason") or get_str(params, "message"),
    )


def _decision(answer: ApprovalAnswer) -> Frame:
    """Return the decision. codex accepts `acceptForSession` even if `availableDecisions` does not list it (0.169.0)."""
    for_ever = answer.decision == "allow" and answer.remember
    return {"decision": "acceptForSession" if for_ever else _ONCE[answer.decision]}


def _command(params: Frame, calls: Calls) -> _Question:
    kind, network = get_str(params, "kind") or "command", get_dict(params, "networkApprovalContext")
    told = {"cwd": params.get("cwd"), "additional_permissions": params.get("additionalPermissions")}
    command = _script(get_str(params, "command") or "")
    if kind != "command":  # what is typed into a command that runs: no rule for commands may take it for one
        tool, told["for_command"] = "write_stdin", command
    elif network:
        tool, told["for_command"], told["network"] = "network_access", command, network
    else:
        tool, told["command"] = "exec_command", command
    prefix = params.get("proposedExecpolicyAmendment")
    offers = ({"type": "exec_policy_prefix", "command": prefix},) if isinstance(prefix, list) and prefix else ()
    return _Question(tool, {name: value for name, value in told.items() if value}, _decision, offers)


def _script(command: str) -> str:
    """Return `git status` for `/bin/bash -lc 'git status'`."""
    try:
        words = shlex.split(command)
    except ValueError:
        return command
    is_shell = len(words) == 3 and words[0].rsplit("/", 1)[-1] in _SHELLS and words[1] in ("-lc", "-c")
    return words[2] if is_shell else command


def _patch(params: Frame, calls: Calls) -> _Question:
    root = get_str(params, "grantRoot")
    told = calls.input_of(get_str(params, "itemId"))
    return _Question("apply_patch", {**told, "grant_root": root} if root else told, _decision)


def _permissions(params: Frame, calls: Calls) -> _Question:
    wanted = {name: value for name, value in get_dict(params, "permissions").items() if value is not None}

    def answer(word: ApprovalAnswer) -> Frame:
        if word.decision == "deny":
            return {"permissions": {}, "scope": "turn"}
        return {"permissions": wanted, "scope": "session" if word.remember else "turn"}

    return _Question("request_permissions", wanted, answer)


def _elicitation(params: Frame, calls: Calls) -> _Question:
    """Return an elicitation: of codex for a tool call, or of an MCP server for values."""
    meta = get_dict(params, "_meta")
    if get_str(meta, "codex_approval_kind") == "mcp_tool_call":
        return _mcp_tool(params, meta)
    server = get_str(params, "serverName") or ""
    given = elicitation_input(
        get_str(params, "message"), server=server, schema=params.get("requestedSchema"), url=get_str(params, "url")
    )

    def answer(word: ApprovalAnswer) -> Frame:
        return {"content": None, "_meta": None, **answer_to_elicitation(given, word)}

    return _Question(elicitation_tool(server), given, answer, takes_input=True)


def _mcp_tool(params: Frame, meta: Frame) -> _Question:
    offered = meta.get("persist")
    keeps = isinstance(offered, list) and "session" in offered

    def answer(word: ApprovalAnswer) -> Frame:
        if word.decision == "deny":
            return {"action": "decline", "content": None, "_meta": None}
        return {"action": "accept", "content": {}, "_meta": {"persist": "session"} if word.remember and keeps else None}

    tool = f"mcp__{get_str(params, 'serverName')}__{get_str(meta, 'tool_name')}"
    return _Question(tool, get_dict(meta, "tool_params"), answer)


def _user_input(params: Frame, calls: Calls) -> _Question:
    """Return questions of the model. An answer is keyed by the text of its question."""
    questions = get_dicts(params, "questions")

    def answer(word: ApprovalAnswer) -> Frame:
        if word.decision == "deny":
            return {"answers": {}}
        return {"answers": {name: {"answers": [text]} for name, text in _answers(questions, word).items()}}

    return _Question("request_user_input", {"questions": questions}, answer, takes_input=True)


def _answers(questions: list[Frame], answer: ApprovalAnswer) -> dict[str, str]:
    """Return the answers by the ids of their questions. Raises `UsageError` for missing answers."""
    refuse_rule(answer, "answer questions", "answers for them")
    given = (answer.updated_input or {}).get("answers")
    found = {}
    for question in questions:
        text = get_str(given if isinstance(given, dict) else {}, get_str(question, "question") or "")
        if text is None:
            raise UsageError(
                f"cannot answer the questions: {json.dumps((get_str(question, 'question') or '')[:200], ensure_ascii=False)} "
                "has no answer",
                hint="answer with updated_input.answers, an object with a text for each question, or deny it",
            )
        found[get_str(question, "id") or ""] = text
    return found


_METHODS: dict[str, Callable[[Frame, Calls], _Question]] = {
    "item/commandExecution/requestApproval": _command,
    "item/fileChange/requestApproval": _patch,
    "item/permissions/requestApproval": _permissions,
    "item/tool/requestUserInput": _user_input,
    "mcpServer/elicitation/request": _elicitation,
}
