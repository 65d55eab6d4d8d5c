"""The check of docstring openings finds what it is to find."""

from __future__ import annotations

from tests.docstrings import findings


def test_a_question_word_a_pronoun_and_a_question_are_findings() -> None:
    source = (
        '"""What a module is about."""\n'
        "class Turn:\n"
        '    """One turn\'s state."""\n'
        "    def ended(self) -> bool:\n"
        '        """Is the turn over?"""\n'
        "    def end(self) -> None:\n"
        '        """End the turn?"""\n'
    )
    assert [line for line, _ in findings(source)] == [1, 3, 5, 7]


def test_a_verb_a_noun_and_a_word_that_only_begins_alike_are_none() -> None:
    source = '"""Queue of prompts."""\ndef is_over() -> bool:\n    """Return whether the turn is over."""\n'
    assert list(findings(source + 'def area() -> int:\n    """Area of a pane."""\n    """Is no docstring?"""\n')) == []
