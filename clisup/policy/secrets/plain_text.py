"""Text of others on its way to a terminal, made harmless: without control, direction and hidden characters. Pure."""

from __future__ import annotations

_KEPT = (9, 10)  # tab and line end
_CONTROLS = (*range(32), *range(127, 160), 0x2028, 0x2029)
_DIRECTIONS = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
# The joiners U+200C and U+200D stay, because scripts and emoji need them.
_INVISIBLE = (0x00AD, 0x180E, 0x200B, *range(0x2060, 0x2066), 0xFEFF, *range(0xFFF9, 0xFFFC), *range(0xE0000, 0xE0080))
_REPLACED = {code: "\N{REPLACEMENT CHARACTER}" for code in (*_CONTROLS, *_DIRECTIONS, *_INVISIBLE) if code not in _KEPT}


def plain(text: str) -> str:
    """Return the text with control, direction and invisible characters replaced. Line ends and tabs stay."""
    return text.translate(_REPLACED)
