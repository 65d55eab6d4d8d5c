"""Errnos that name a shortage of descriptors, processes, memory or buffers. EAGAIN is the one of fork(2)."""

from __future__ import annotations

import errno

SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM, errno.ENOBUFS})
