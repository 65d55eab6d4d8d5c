"""What is taken of a docstring, and what is left in its text."""

from __future__ import annotations

from clisup.llm.tools import read_docstring


def test_a_docstring_without_sections_is_all_text() -> None:
    assert read_docstring("The weather.\n\n    Today's only.\n    ") == ("The weather.\n\nToday's only.", {})


def test_google_sections_describe_the_parameters_and_leave_the_text() -> None:
    doc = read_docstring(
        """Look a word up.

        Slow for long ones.

        Args:
            word (str): What to look for,
                in any case.
            limit: At most so many: 5 is plenty.

        Returns:
            The meanings.

        Raises:
            KeyError: Nobody knows it.
        """
    )
    assert doc.text == "Look a word up.\n\nSlow for long ones."
    assert doc.parameters == {"word": "What to look for, in any case.", "limit": "At most so many: 5 is plenty."}


def test_sphinx_fields_describe_the_parameters_and_leave_the_text() -> None:
    doc = read_docstring(
        """Look a word up.

        :param word: What to look for,
            in any case.
        :param int limit: At most so many.
        :returns: The meanings.
        :raises KeyError: Nobody knows it.
        """
    )
    assert doc.text == "Look a word up."
    assert doc.parameters == {"word": "What to look for, in any case.", "limit": "At most so many."}


def test_examples_and_notes_stay_for_the_model_to_read() -> None:
    doc = read_docstring("Add.\n\nArgs:\n    a: One.\n\nExample:\n    add(1, 2)\n\nReturns:\n    A sum.")
    assert doc.text == "Add.\n\nExample:\n    add(1, 2)"
    assert doc.parameters == {"a": "One."}


def test_text_that_only_looks_like_a_section_stays() -> None:
    assert read_docstring("Usage: give a word.\nIt says: no.").text == "Usage: give a word.\nIt says: no."
    assert read_docstring(None) == ("", {})
