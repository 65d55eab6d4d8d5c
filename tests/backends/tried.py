"""Which test tries an ability of a backend: `TRIED[ability][kind]`.

A test holds that each ability that an adapter declares has its test here, and no other. The abilities of `SHOWN_BY_TESTS` are no
part of `Capabilities`: what a CLI asks of its user, for example. For these the tests alone make the rows of the table.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["SHOWN_BY_TESTS", "TRIED"]

SHOWN_BY_TESTS: Mapping[str, str] = {
    "questions": "questions of the model",
    "forms": "forms of MCP servers (elicitations)",
    "plan": "the agent's plan, as a `status`",
}
"""Ability to its words in the table."""

_REASONING = "e2e/test_matrix.py::test_one_script_one_story_with_reasoning"
_TOOL = "e2e/test_matrix.py::test_one_script_one_story_with_a_tool"
_TOOLS = "e2e/tools/test_calls.py::test_a_call_is_run_by_the_client_and_its_answer_reaches_the_model"
_LIVE = "e2e/test_matrix_live.py::test_many_turns_have_one_process_and_the_next_process_goes_on_with_the_session"
_KEPT = "e2e/test_matrix_live.py::test_an_interrupt_ends_the_turn_and_its_tool_and_keeps_the_process"
_ASKED = "e2e/test_matrix_live.py::test_a_turn_and_its_approval_go_on_in_their_process_while_the_daemon_is_killed"
_RESUME = "e2e/test_matrix.py::test_a_resumed_session_remembers_its_first_turn_and_counts_each_turn_alone"
_LIVE_CLIS = ("acp", "claude", "codex", "gemini", "qwen")
_CONTROLS = "e2e/test_live.py::test_model_mode_context_and_compaction_of_a_live_process"
_CODEX_SCHEMA = "e2e/codex/test_structured.py::test_a_turn_with_a_schema_has_the_value_and_the_next_one_is_free"
_GEMINI_TEXT = "e2e/gemini/test_answers.py::test_a_text_answer_streams_and_is_told_whole_and_its_thoughts_are_counted"
_GEMINI_RESUME = "e2e/gemini/test_answers.py::test_a_resumed_session_remembers_survives_a_new_one_and_starts_at_once"
_QWEN_MODEL = "e2e/qwen/test_qwen_live.py::test_the_model_changes_in_the_running_process"
_API_LIVE = "daemon/test_api_backends.py::test_two_turns_share_a_process_and_the_second_knows_the_first"


def _api(test: str) -> Mapping[str, str]:
    """Both kinds that ask an API with a key are tried by the same tests."""
    return dict.fromkeys(("anthropic-api", "openai-api"), test)


TRIED: Mapping[str, Mapping[str, str]] = {
    "one_shot": {
        **dict.fromkeys(("acp", "claude", "codex", "codex-exec", "gemini", "opencode", "qwen"), _TOOL),
        **_api(
            "daemon/test_api_backends.py::test_in_one_shot_mode_each_turn_has_a_process_and_the_conversation_goes_on"
        ),
    },
    "live": {
        **_api(_API_LIVE),
        **dict.fromkeys(_LIVE_CLIS, _LIVE),
    },
    "live_by_default": _api(_API_LIVE),
    "steer": {
        **_api("worker/test_live_real.py::test_a_message_that_comes_while_a_tool_runs_goes_with_its_result"),
        "claude": "e2e/test_live.py::test_a_prompt_steered_into_a_tool_is_taken_by_the_turn",
        "codex": "e2e/codex/test_codex_steering.py::test_a_turn_at_a_tool_takes_a_steered_prompt",
    },
    "kept": {
        **_api("daemon/test_api_backends.py::test_an_interrupt_ends_the_turn_and_keeps_the_process"),
        **dict.fromkeys(_LIVE_CLIS, _KEPT),
    },
    "resume": {
        **_api("worker/test_history_real.py::test_a_session_is_resumed_with_all_that_was_said"),
        **dict.fromkeys(("acp", "claude", "codex", "codex-exec", "opencode", "qwen"), _RESUME),
        "gemini": _GEMINI_RESUME,
    },
    "fork": {
        **_api("daemon/test_api_backends.py::test_a_fork_has_the_turns_before_it_and_a_resumed_session_all"),
        "claude": "e2e/test_forking.py::test_after_a_fork_at_a_turn_the_request_holds_that_turn_and_the_new_prompt_alone",
        "codex": "e2e/codex/test_codex_sessions.py::test_a_fork_at_a_turn_has_that_turn_and_the_new_prompt_alone",
    },
    "history": {
        **_api("daemon/test_api_backends.py::test_a_history_may_end_with_calls_that_the_first_prompt_answers"),
        "claude": "e2e/test_seeding.py::test_the_api_gets_exactly_these_messages_and_the_new_prompt",
        "qwen": "e2e/qwen/test_seeding.py::test_the_api_gets_exactly_these_messages_and_a_vanilla_qwen_reads_them",
        "codex": "e2e/codex/test_codex_sessions.py::test_the_api_gets_exactly_these_messages_and_the_new_prompt",
    },
    "chosen_id": {
        **_api("worker/test_history_real.py::test_an_id_in_use_is_refused_as_by_claude"),
        "claude": "e2e/test_answers.py::test_a_text_answer_streams_and_is_confirmed_whole",
        "gemini": _GEMINI_RESUME,
        "qwen": _RESUME,
    },
    "native_sessions": {
        "claude": "e2e/test_native_session_lists.py::test_sessions_of_a_terminals_claude_are_listed_and_taken_up",
        "codex": "e2e/test_native_session_lists.py::test_sessions_of_codex_are_listed_and_taken_up",
        "codex-exec": "e2e/test_native_session_lists.py::test_sessions_of_codex_are_listed_and_taken_up",
    },
    "deltas": {
        **_api("worker/test_worker_answers.py::test_text_streams_in_the_pieces_of_the_api"),
        "acp": "e2e/acp/test_qwen.py::test_a_text_answer_streams_and_is_confirmed_whole",
        "claude": "e2e/test_answers.py::test_a_text_answer_streams_and_is_confirmed_whole",
        "codex": "e2e/codex/test_answers.py::test_a_text_answer_is_confirmed_whole_in_the_session_whose_id_codex_chose",
        "gemini": _GEMINI_TEXT,
        "qwen": "e2e/qwen/test_answers.py::test_a_text_answer_of_the_worker_behind_the_launcher_streams_and_is_confirmed_whole",
    },
    "thinking": {
        **_api("worker/test_worker_answers.py::test_thinking_goes_back_with_the_next_request"),
        **dict.fromkeys(("acp", "claude", "codex", "codex-exec", "opencode", "qwen"), _REASONING),
        "gemini": _LIVE,
    },
    "approvals": {
        **_api("worker/test_live_real.py::test_a_tool_that_is_allowed_runs_with_the_input_of_the_answer"),
        "acp": "e2e/acp/test_qwen.py::test_a_tool_that_needs_a_permission_runs_where_a_rule_allows_it",
        "claude": "e2e/test_live_approvals.py::test_a_tool_runs_only_where_it_is_allowed_and_the_process_lives_on",
        "codex": "e2e/codex/test_approvals.py::test_a_command_runs_outside_the_sandbox_only_where_it_is_allowed",
        "gemini": _ASKED,
        "qwen": _ASKED,
    },
    "questions": {
        "acp": "e2e/acp/test_qwen.py::test_questions_are_answered_as_a_form_and_the_answers_reach_the_model",
        "claude": "e2e/test_live_forms.py::test_choices_several_choices_and_own_words_reach_the_model",
        "codex": "e2e/codex/test_approvals.py::test_the_questions_of_codex_are_answered_where_the_user_lets_it_ask",
        "qwen": "e2e/qwen/test_qwen_live.py::test_a_question_of_the_model_gets_its_answers",
    },
    "forms": {
        "acp": "daemon/test_acp_elicitations.py::test_a_form_waits_for_values_that_fit_and_the_agent_gets_them",
        "claude": "e2e/test_live_forms.py::test_the_form_of_an_mcp_server_reaches_it_filled",
        "codex": "e2e/codex/test_approvals.py::test_the_form_of_an_mcp_server_reaches_it_filled",
    },
    "plan": {
        "acp": "daemon/test_acp_dialogue.py::test_a_turn_is_told_as_any_other_backend_tells_it",
        "codex": "e2e/codex/test_live.py::test_plans_reasoning_and_images_come_in_each_turn",
    },
    "structured": {
        **_api("worker/test_worker_answers.py::test_a_schema_is_asked_for_in_the_field_of_each_api"),
        "claude": "e2e/test_structured.py::test_each_turn_has_its_own_schema_and_the_conversation_goes_on",
        "codex": _CODEX_SCHEMA,
        "codex-exec": _CODEX_SCHEMA,
        "qwen": "e2e/qwen/test_seeding.py::test_each_turn_has_its_own_schema_and_the_conversation_goes_on",
    },
    "images": {
        **_api("worker/test_worker_answers.py::test_images_of_a_prompt_reach_the_model"),
        "acp": "e2e/acp/test_content.py::test_images_reach_the_model_in_their_places",
        "claude": "e2e/test_content.py::test_an_image_reaches_the_model_as_it_is_and_in_its_place",
        "codex": "e2e/codex/test_content.py::test_images_reach_the_model_as_they_are_and_in_their_places",
        "codex-exec": "e2e/codex/test_content.py::test_exec_takes_images_by_file_and_before_the_text",
        "gemini": "e2e/gemini/test_content.py::test_an_image_reaches_the_model_as_it_is_and_is_named_in_its_place",
    },
    "system_prompt": {
        **_api("daemon/test_api_backends.py::test_the_systems_prompt_is_the_callers_alone"),
        "claude": "e2e/test_seeding.py::test_the_system_prompt_and_the_model_of_the_session_count",
        "codex": "e2e/codex/test_answers.py::test_a_system_prompt_is_given_beside_codex_s_own_and_kept",
        "gemini": "e2e/gemini/test_answers.py::test_a_system_prompt_takes_the_place_of_geminis_own",
        "qwen": "e2e/qwen/test_answers.py::test_a_text_answer_of_the_worker_behind_the_launcher_streams_and_is_confirmed_whole",
    },
    "mcp": {
        **_api("worker/test_tools_real.py::test_parallel_calls_run_side_by_side_and_their_results_go_back_in_order"),
        "acp": "daemon/test_acp_dialogue.py::test_model_mode_and_mcp_servers_reach_the_agent_before_the_prompt",
        "claude": "e2e/test_live_forms.py::test_the_form_of_an_mcp_server_reaches_it_filled",
        "codex": "e2e/codex/test_answers.py::test_an_mcp_server_of_the_session_is_used_and_stands_in_no_argv",
        "qwen": "e2e/qwen/test_hostile_repository.py::test_a_session_with_mcp_servers_of_its_own_reads_nothing_either",
        "gemini": "e2e/gemini/test_gemini_live.py::test_servers_of_the_session_and_pictures_reach_the_model",
    },
    "tools": {
        **_api(_TOOLS),
        **dict.fromkeys(("claude", "codex", "codex-exec", "qwen"), _TOOLS),
        "gemini": "e2e/gemini/test_gemini_live.py::test_tools_of_the_client_run_without_a_question",
    },
    "caller_tools": _api(
        "daemon/test_api_backends.py::test_a_call_of_the_callers_tool_ends_the_turn_and_its_result_begins_the_next"
    ),
    "cli_tools": {
        **_api("e2e/tools/test_nodes.py::test_every_cli_gives_the_same_nodes_for_the_same_calls"),
        "claude": "e2e/test_plain_model.py::test_claude_has_no_tools_and_no_prompt_of_its_own_where_that_is_asked_for",
    },
    "set_model": {
        **_api("worker/test_live_real.py::test_model_and_permission_mode_change_between_turns"),
        "claude": _CONTROLS,
        "acp": "daemon/test_acp_live.py::test_a_model_and_a_mode_are_set_between_two_turns_of_one_process",
        "codex": "e2e/codex/test_live.py::test_another_model_has_the_next_turn_in_the_same_process",
        "qwen": _QWEN_MODEL,
    },
    "set_permission_mode": {
        **_api("worker/test_live_real.py::test_model_and_permission_mode_change_between_turns"),
        "claude": _CONTROLS,
        "acp": "daemon/test_acp_live.py::test_a_model_and_a_mode_are_set_between_two_turns_of_one_process",
    },
    "context_usage": {"claude": _CONTROLS, "qwen": _QWEN_MODEL},
    "compact": {"claude": _CONTROLS, "codex": "e2e/codex/test_live.py::test_a_compaction_is_a_turn_like_any_other"},
    "models": _api("daemon/test_api_backends.py::test_the_models_of_a_provider_are_listed"),
    "usage": {
        **_api("worker/test_worker_answers.py::test_usage_counts_all_tokens_of_the_turn"),
        "acp": "e2e/acp/test_qwen.py::test_tools_run_and_usage_is_the_sum_of_their_requests",
        "claude": _RESUME,
        "codex": _TOOL,
        "codex-exec": _RESUME,
        "gemini": _GEMINI_TEXT,
        "qwen": _RESUME,
        "opencode": _TOOL,
    },
    "cost": {
        **_api("worker/test_worker_answers.py::test_a_known_model_has_an_estimated_cost"),
        "acp": "daemon/test_acp_dialogue.py::test_usage_and_cost_are_what_the_agent_says",
        "claude": _RESUME,
        "opencode": "e2e/opencode/test_answers.py::test_a_text_answer_comes_whole_and_costs_what_its_one_request_cost",
    },
}
"""Ability to kind to test, as `FOLDER/FILE::FUNCTION` below tests/."""
