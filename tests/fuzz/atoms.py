"""Hostile JSON values and bytes: what a lax reader takes, what a strict one dies of, and what lies at a limit."""

from __future__ import annotations

__all__ = ["JUNK", "KEYS", "NUMBERS", "STRINGS", "VALUES", "giants"]


def _nested(depth: int, opening: bytes, closing: bytes, core: bytes = b"1") -> bytes:
    return opening * depth + core + closing * depth


STRINGS: tuple[bytes, ...] = (
    b'""', b'"x"', b'"\\ud800"', b'"\\udc00"', b'"\\ud83d\\ude00"', b'"\\ude00\\ud83d"', b'"a\\ud83d"', b'"\\ude00b"',
    b'"\\\\ud83d"', b'"\\\\\\ud83d"', b'"\\u0000"', b'"\\u2028\\u0085"', "\"\u2028\u2029\ufeff\"".encode(), b'"\\r\\n"',
    b'"\xff\xfe"', b'"\xc3"', b'"\xed\xa0\x80"', b'"\xf0\x9f\x8e"', b'"\xc0\xaf"', b'"\x01"', b'"\t"', b'"\\q"', b'"\\u12"',
    b'"' + b"x" * 300 + b'"', b'"' + b"y" * 5000 + b'"', b'"' + b"\\u00e9" * 700 + b'"', b'"<persisted-output>"', b'"rejected"',
    b'"<synthetic>"', b'"2026-01-01T00:00:00Z"', b'"\xf0\x9f\x8e\x88"', b'"],\\"event\\":{\\"seq\\":9}"', b'"\\"type\\":\\"notice\\""',
)  # fmt: skip
"""JSON strings as bytes, some of them none."""

NUMBERS: tuple[bytes, ...] = (
    b"0", b"-0", b"-0.0", b"1", b"-1", b"1.5", b"401", b"529", b"1e3", b"1e308", b"-1e308", b"1e400", b"-1E400", b"1e-400",
    b"9007199254740993", b"9223372036854775808", b"18446744073709551616", b"-9223372036854775809", b"1" + b"0" * 30,
    b"1" + b"0" * 400, b"-" + b"9" * 400, b"1" * 4299, b"1" * 4301, b"0.1" + b"3" * 400, b"253402300800", b"-62135596801", b"01", b"+1",
    b".5", b"1.", b"0x10", b"1_000", b"NaN", b"Infinity", b"-Infinity", b"nan",
)  # fmt: skip
"""JSON numbers, and what looks like one."""

VALUES: tuple[bytes, ...] = (
    b"null", b"true", b"false", b"undefined", b"None", b"{}", b"[]", b"[[]]", b"[null]", b"[{}]", b"[1,\"a\",{}]", b"7", b'"7"',
    b'{"":null}', b'{"a":1,"a":2}', b'{"type":"text","text":"t"}', b'[{"type":"text","text":"t"},{"type":"image","source":7}]',
    b'[{"type":"tool_use","id":"i","name":"n","input":{"a":{}}}]', b'[{"type":"tool_result","tool_use_id":"i","content":[1]}]',
    b'{"type":"text_delta","text":"\\ud83d"}', b'{"type":"input_json_delta","partial_json":"{"}', b'"unterminated', b"{", b"[", b"]",
    b"}", b",", b":", b"",
    _nested(50, b"[", b"]"), _nested(97, b'{"a":', b"}"), _nested(103, b"[", b"]"), _nested(199, b"[", b"]"), _nested(205, b"[", b"]"),
    _nested(205, b'{"a":', b"}"), _nested(260, b'[{"b":', b"}]"), _nested(1100, b"[", b"]"), _nested(1100, b'{"a":', b"}"),
    b"[" * 1500, b'{"a":' * 1500,
    *STRINGS, *NUMBERS,
)  # fmt: skip
"""What may stand where a value stood."""

KEYS: tuple[bytes, ...] = (
    b'"type"', b'"subtype"', b'"id"', b'"method"', b'"params"', b'"jsonrpc"', b'"session_id"', b'"event"', b'"seq"', b'"src"', b'"memo"',
    b'"snapshot"', b'"message"', b'"content"', b'"usage"', b'"delta"', b'"index"', b'"text"', b'"input"', b'"tool_use_id"', b'"is_error"',
    b'"result"', b'"total_cost_usd"', b'"structured_output"', b'"tasks"', b'"status"', b'"abandoned_blocks"', b'"parent_tool_use_id"',
    b'""', b'"\\ud800"', b'"\\u0000"', b'"__proto__"', b'"self"', b'"' + b"k" * 3000 + b'"', b'"\xff"', b'"surplus"', b"7", b"null",
)  # fmt: skip

JUNK: tuple[bytes, ...] = (
    b"\x00", b"\xff", b"\xfe\xff", b"\xff\xfe", b"\xef\xbb\xbf", b"\r", b"\r\n", b"\n", b"\n\n", b" ", b"\t", b"\x0b\x0c\x1c\x85", b"\\",
    b'"', b'\\"', b"\x1b[31mred\x1b[0m", b"[debug] 12 ms", b"\xe2\x80\xa8", b"\x80" * 9, b"\xf4\x90\x80\x80", b"{", b"}", b"[", b"]", b",",
    b"\x00" * 600, b"[" * 300, b"]" * 300, bytes(range(256)),
)  # fmt: skip
"""Bytes that may stand anywhere."""


def giants(mib: int) -> dict[str, bytes]:
    """Single lines of `mib` MiB, too slow to be made by chance: the lane reads each once."""
    size = mib * 1024 * 1024
    text = b'{"type":"assistant","message":{"id":"m","content":[{"type":"text","text":"' + b"x" * size + b'"}]}}'
    return {
        "a text": text,
        "a text cut off": text[:-9],
        "open arrays": b"[" * size,
        "open objects": b'{"a":' * (size // 5),
        "arrays inside a frame": b'{"type":"result","structured_output":'
        + b"[" * (size // 2)
        + b"]" * (size // 2)
        + b"}",
        "a number": b'{"type":"result","total_cost_usd":' + b"9" * size + b"}",
        "many keys": b"{" + b",".join(b'"%d":0' % n for n in range(size // 16)) + b"}",
        "the same key": b'{"type":"result"' + b',"type":"user"' * (size // 14) + b"}",
        "NUL": bytes(size),
        "0xff": b"\xff" * size,
        "UTF-16": ('{"type":"result"}' * (size // 34)).encode("utf-16"),
        "escapes of halves": b'{"type":"user","message":{"content":"' + b"\\ud83d" * (size // 6) + b'"}}',
        "backslashes": b'"' + b"\\" * size,
        "blank": b" " * size,
    }
