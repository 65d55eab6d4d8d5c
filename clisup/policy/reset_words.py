"""End of a limit, read from the words of a CLI or provider. Pure; times are seconds since the epoch.

Newer CLIs report the end as a number. Older ones, gateways and providers only say it: as a time of day, as a date, as a span, or
as a number behind a bar. Each pattern below stands for wordings of public reports.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

__all__ = ["reset_in"]

_LONGEST_S = 40 * 86400.0
"""Longest wait that is believed: the longest limits are those of a month."""
_PASSED_S = 15 * 60.0
"""Age at which a time of day is that of tomorrow. A younger one is the limit's end, which has just passed."""
_MONTHS = {name: number for number, name in enumerate(
    ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), 1)}  # fmt: skip
_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}

# Claude AI usage limit reached|1749924000
_EPOCH = re.compile(r"limit reached\s*\|\s*(\d{10})(?:\d{3})?\b|\"resets_at\"\s*:\s*(\d{10})\b", re.IGNORECASE)
# try again in 5 days 22 hours 11 minutes; Your quota will reset after 8h44m7s; Resets in 12 days
_PART = r"\d{1,5}(?:\.\d{1,3})?\s?(?:days?|d|hours?|hrs?|hr|h|minutes?|mins?|min|m|seconds?|secs?|sec|s)(?![a-z])"
_SPAN = re.compile(
    rf"(?:again|resets?|reset|retry|renews?)\s+(?:in|after)\s+((?:\d{{1,5}}(?:\.\d{{1,3}})?[dhms])+(?![a-z])|{_PART})"
    rf"((?:,?\s+(?:and\s+)?{_PART})*)",
    re.IGNORECASE,
)
_ONE = re.compile(r"(\d{1,5}(?:\.\d{1,3})?)\s?([dhms])", re.IGNORECASE)
# resets 7am (Europe/Zurich); resets Aug 3, 7am; reset at 1pm (Etc/GMT+5); resets Oct 9 at 10am; try again at Jul 5th, 2026 8:19 PM
_CLOCK = re.compile(
    r"(?:again|resets?|reset|renews?)\s+(?:at\s+|on\s+)?"
    r"(?:(?P<month>[a-z]{3})[a-z]{0,6}\.?\s+(?P<day>\d{1,2})(?:st|nd|rd|th)?,?\s*(?:(?P<year>20\d\d)\b,?\s*)?(?:at\s+)?)?"
    r"(?P<hour>\d{1,2})(?::(?P<minute>\d\d))?\s?(?P<half>[ap]\.?m\b)?(?:\s*\((?P<zone>[A-Za-z0-9_+\-/]{1,40})\))?",
    re.IGNORECASE,
)


def reset_in(text: str, now: float, local: tzinfo | None = None) -> float | None:
    """Return the end of a limit that a message tells, or None if it tells none.

    A time without a zone is one of `local`, by default the zone of this machine, as in the CLI's own display. A message whose end
    has passed gives this end; a message with an end that is too far away gives None.
    """
    for read in (_epoch, _span, _clock):
        at = read(text, now, local)
        if at is not None:
            return at if at - now <= _LONGEST_S else None
    return None


def _epoch(text: str, _now: float, _local: tzinfo | None) -> float | None:
    found = _EPOCH.search(text)
    return float(found[1] or found[2]) if found else None


def _span(text: str, now: float, _local: tzinfo | None) -> float | None:
    found = _SPAN.search(text)
    if found is None:
        return None
    parts = _ONE.findall(found[1] + " " + found[2])
    return now + sum(float(number) * _UNITS[unit.lower()] for number, unit in parts)


def _clock(text: str, now: float, local: tzinfo | None) -> float | None:
    for found in _CLOCK.finditer(text):
        if found["half"] or found["minute"]:  # a number alone is no time of day
            return _time(found, now, local)
    return None


def _time(found: re.Match[str], now: float, local: tzinfo | None) -> float | None:
    try:
        zone = ZoneInfo(found["zone"]) if found["zone"] else local
        here = datetime.fromtimestamp(now, zone)
        hour = _hour(int(found["hour"]), found["half"])
        at = here.replace(hour=hour, minute=int(found["minute"] or 0), second=0, microsecond=0)
        if found["month"] is None:
            return _next_day(at, now)
        dated = at.replace(month=_MONTHS[found["month"].lower()], day=int(found["day"]))
        if found["year"]:
            return dated.replace(year=int(found["year"])).timestamp()
        late = now - dated.timestamp() > 180 * 86400  # in December, "Jan 3" is one of the next year
        return dated.replace(year=dated.year + 1).timestamp() if late else dated.timestamp()
    except (KeyError, ValueError, OSError, OverflowError):  # no such zone, month, day or hour
        return None


def _hour(hour: int, half: str | None) -> int:
    """Return the hour of 24. Raises `ValueError` for 13pm."""
    if half is None:
        return hour
    if not 1 <= hour <= 12:
        raise ValueError(hour)
    return hour % 12 + (12 if half[0] in "pP" else 0)


def _next_day(at: datetime, now: float) -> float:
    return (at + timedelta(days=1) if now - at.timestamp() > _PASSED_S else at).timestamp()
