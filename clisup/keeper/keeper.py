"""The keeper: one small process that owns the pipes of one CLI and outlives the daemon that started it.

Started as `python -I -S keeper.py` with an empty environment; the launch spec is one JSON object on stdin up to EOF. It
promises: every byte that the CLI says is in `out.spool` / `err.spool` once and in order, the way the CLI ended is in
`exit.json`, nothing of the CLI's tree is left unless the policy says so, and the CLI dies when the keeper is killed.
Exit status: 0 the run is over and recorded (a failed spawn too), 75 the run belongs or belonged to another keeper,
65 the spec is no good, 74 the run directory cannot be written. One JSON line on stdout says `ready` or the `error`.

Start the *compiled* file, made once with `py_compile.compile(keeper.py, cfile=..., optimize=2)` and given to python by
its path: a script's source is compiled anew at every start, which costs 10 ms and 4 MB of private memory. Or have it
forked: `python -I -S keeper.py zygote`, with a socket as its stdin, is a process that has loaded all this once (`be_zygote`).

Single-threaded on purpose: PDEATHSIG belongs to the *thread* that forked, and only such a process may fork safely.
Only C modules are imported (`posix` not `os`, `_json` not `json`): 8 ms less at start and half the memory. Nothing is
imported after the start, since the installation may be upgraded under a running keeper.
"""

from __future__ import annotations

import _ctypes
import _json
import _socket
import errno
import fcntl
import gc
import posix
import resource  # also what posix.wait4 would import behind our back
import select
import sys
import time

TYPE_CHECKING = False  # `typing` costs 3 ms and 1 MB at start, `signal` 1 ms for its enums
if TYPE_CHECKING:
    import signal as _signal
    from collections import deque
    from collections.abc import Callable
    from typing import Any, ClassVar, NoReturn
else:
    import _signal
    from _collections import deque

PROTO = 1
KIB, MIB = 1024, 1024 * 1024
BLOCK = 64 * KIB  # the size of a pipe: a bigger read brings nothing
PAGE = 4 * KIB  # what /proc gives at once: memory for more would be new pages each time
SPEC_MAX = 80 * MIB  # the spec carries the first prompt
LINE_MAX = 80 * MIB  # a control line carries a stdin message; over QUEUE_MAX is still answered by a nack
QUEUE_MAX = 64 * MIB  # stdin text that waits for a CLI that does not read
OUTGOING_MAX = 1 * MIB  # a daemon that does not read its pushes is dropped, it may come again
WINDOW_MAX = 64  # pushes of `grew` that may be unseen: what the daemon asks for in its hello is cut to this
TAIL_MAX = 1 * MIB  # stderr's tail lives in memory until the end
RESERVED = 32 * KIB  # of disk, so that a full one cannot lose the exit record
LISTED_MAX = 24  # processes named in one list of the exit record: three lists fit into RESERVED
LADDER_MAX = 16  # steps
DAY_S = 86_400.0  # the longest single wait and grace: poll's int of milliseconds ends at 24 days
EXEC_S = 30.0  # between fork and exec (a hung mount): then it is a failed spawn
ATTEST_S = 0.05  # the kernel closes our pipe a moment before it publishes the new environment
EOF_S = 0.25  # for EOF after the CLI's exit: an orphan may hold the pipe for ever
KILL_S = 2.0  # of killing what is left, then it is reported
FLUSH_S = 60.0  # for a full disk to find space once the CLI is dead
LINGER_S = 2.0  # for the daemon to read the last push
RETRY_S = 0.25  # between two tries on a full disk
HOME_LOOK_S = 30.0  # between two looks, without a daemon, whether the run directory is still there
COPY_S = 0.05  # between two looks at the CLI's stdout file
COPY_BLOCKS = 16  # a look, so that a flood into the file does not starve the control socket
REST_BLOCKS = 64  # after the end: a pipe holds 1 MiB at most, more comes from an orphan that is kept
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 4, 36
ZYGOTE, KEEPER = b"zygote", b"keeper"  # the last word of a command line; one is written over the other
SYS_CLONE3, SYS_CLOSE_RANGE = 435, 436  # the same on every architecture
CLONE_INTO_CGROUP = 1 << 33
UNLIMITED = resource.RLIM_INFINITY
DEPTH_MAX = 1000  # parents of a peer that are looked at; no daemon is nested so deep
# A keeper lowers this hard limit by a hair for its CLI. All that the CLI starts inherits it, and none of it can raise it again
# without CAP_SYS_RESOURCE. It bounds processes with real-time scheduling alone, and in microseconds: to 146,000 years.
MARK = resource.RLIMIT_RTTIME
MARKED = 1 << 62
OWN_LIMIT = resource.getrlimit(MARK)[1]  # as it was before any CLI ran: a tool of the same user may lower ours, too
# Soft limits at the start of a CLI, each cut to the hard one. 1024 files is what a login shell gives and what select()
# can take; node, bun and Go raise it by themselves. Cores would hold secrets. The rest undoes what a parent set.
SOFT_LIMITS = (
    (resource.RLIMIT_CORE, 0),
    (resource.RLIMIT_NOFILE, 1024),
    (resource.RLIMIT_STACK, 8 * MIB),
    (resource.RLIMIT_FSIZE, UNLIMITED),
    (resource.RLIMIT_CPU, UNLIMITED),
    (resource.RLIMIT_DATA, UNLIMITED),
    (resource.RLIMIT_AS, UNLIMITED),
)
SIGNALS = {
    name: int(getattr(_signal, "SIG" + name))
    for name in ("INT", "TERM", "KILL", "HUP", "QUIT", "USR1", "USR2", "STOP", "CONT")
}
REQUIRED: dict[str, type] = {"proto": int, "run_dir": str, "argv": list, "env": dict, "cwd": str}
DEFAULTS: dict[str, Any] = {
    "marker": {}, "stdin": None, "stdin_eof": True, "stdout_mode": "pipe", "limits": {}, "wall_s": 0, "lease_s": DAY_S,
    "term_grace_s": 5, "int_grace_s": 2, "orphans": "grace", "orphan_grace_s": 0, "oom_score_adj": 300, "cgroup": None,
    "umask": 0o077,
}  # fmt: skip
RUNNING, DRAINING, WAITING, FLUSHING, OVER = "running", "draining", "waiting", "flushing", "over"


class Refused(Exception):
    """The keeper leaves before the fork. `status` is its exit status, `answer` its line on stdout."""

    def __init__(self, status: int, **answer: Any) -> None:
        self.status, self.answer = status, answer


class SpawnFailed(Exception):
    """The CLI was never executed. `record` says at which stage and why."""

    def __init__(self, stage: str, number: int, message: str) -> None:
        self.record = {"stage": stage, "errno": number, "message": message}


class Garbage(ValueError):
    """The peer broke the protocol: its connection is dropped, nothing else happens."""


# --- JSON: the C halves of the `json` module; the module itself costs 5 ms, most of it for `re` -----------------------


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


class _Scanner:
    """What `_json.make_scanner` wants to know; the module's own JSONDecoder is the same with more around it."""

    strict, object_hook, object_pairs_hook = True, None, None
    parse_float, parse_int, parse_constant = float, int, staticmethod(_refuse_constant)
    JSONDecodeError = Garbage


# On bad input the C scanner looks here for the exception to raise: without this it would import `json`, or crash.
sys.modules["json.decoder"] = _Scanner  # type: ignore[assignment]
_scan = _json.make_scanner(_Scanner())  # type: ignore[arg-type]


def loads(data: bytes) -> dict[str, Any]:
    """One JSON object. Raises ValueError for anything else, however nested."""
    try:
        text = data.decode().strip()
        value, end = _scan(text, 0)
    except (StopIteration, RecursionError) as error:
        raise Garbage("no JSON") from error
    if end != len(text) or type(value) is not dict:
        raise Garbage("no JSON object")
    return value


def dumps(value: Any) -> str:
    """JSON of dicts, lists, strings and plain numbers, in ASCII (so that lone surrogates survive)."""
    if isinstance(value, str):
        return _json.encode_basestring_ascii(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{dumps(key)}: {dumps(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(dumps, value)) + "]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return repr(round(value, 6) if isinstance(value, float) else value)


# --- the system calls that Python 3.11 has no name for: `ctypes` itself costs 2 ms, its C half 0.4 --------------------


class _Long(_ctypes._SimpleCData):  # type: ignore[type-arg]
    _type_ = "l"


class _Function(_ctypes.CFuncPtr):
    _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO
    _restype_ = _Long


_LIBC = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]
_prctl = _Function(_ctypes.dlsym(_LIBC, "prctl"))
_syscall = _Function(_ctypes.dlsym(_LIBC, "syscall"))
_malloc_trim = None
try:
    _malloc_trim = _Function(_ctypes.dlsym(_LIBC, "malloc_trim"))
except OSError:
    pass  # a libc that is not glibc
_memmove = _Function(_ctypes.dlsym(_LIBC, "memmove"))
_fallocate = _Function(_ctypes.dlsym(_LIBC, "fallocate"))


def prctl(option: int, value: int) -> None:
    """Raise OSError where the kernel refuses. Every argument is a long: prctl is variadic."""
    if _prctl(_Long(option), _Long(value), _Long(0), _Long(0), _Long(0)) != 0:
        raise OSError(_ctypes.get_errno(), "prctl")


def give_back() -> None:
    """Freed memory, to the kernel: a prompt of 3 MB leaves 6 MB behind it otherwise, for as long as its CLI runs."""
    if _malloc_trim is not None:
        _malloc_trim(_Long(0))


def fork_into(cgroup: str) -> int:
    """As `fork`, with the child born in a cgroup. Raises OSError: a kernel before 5.7, a seccomp filter, no such cgroup.

    To write to cgroup.procs moves a process, for which the kernel waits until every CPU has been through its scheduler:
    5 ms at the least, 9 at the median. There is one thread here and no lock that it could hold, so that libc has nothing
    to put right in the child, which goes to its exec in a straight line (see `Child`).
    """
    directory = posix.open(cgroup, posix.O_PATH | posix.O_DIRECTORY | posix.O_CLOEXEC)
    try:
        fields = (CLONE_INTO_CGROUP, 0, 0, 0, _signal.SIGCHLD, 0, 0, 0, 0, 0, directory)  # struct clone_args, clone(2)
        arguments = b"".join(int(value).to_bytes(8, sys.byteorder) for value in fields)
        pid: int = _syscall(_Long(SYS_CLONE3), arguments, _Long(len(arguments)))
        if pid < 0:
            raise OSError(_ctypes.get_errno(), "clone3")
        return pid
    finally:
        posix.close(directory)


def allocate(fd: int, size: int) -> None:
    """Disk space for the first `size` bytes of a file, for certain: a write alone is promised none before it is synced."""
    if _fallocate(_Long(fd), _Long(0), _Long(0), _Long(size)) != 0:
        if (number := _ctypes.get_errno()) != errno.EOPNOTSUPP:
            raise OSError(number, "fallocate")
        write_all(fd, b" " * size)
        posix.fsync(fd)


def close_from(first: int) -> None:
    """Close every descriptor from `first` on. `os.closerange` loops over 2**31 numbers where libc is old."""
    if _syscall(_Long(SYS_CLOSE_RANGE), _Long(first), _Long(0xFFFFFFFF), _Long(0)) == 0:
        return
    for name in posix.listdir("/proc/self/fd"):  # a seccomp filter that does not know the call
        if int(name) >= first:
            quiet(posix.close, int(name))


def quiet(call: Callable[..., Any], *args: Any) -> None:
    """For clean-up whose failure changes nothing."""
    try:
        call(*args)
    except OSError:
        pass


# --- /proc ------------------------------------------------------------------------------------------------------------


class Stat:
    """One process as /proc saw it. (pid, start) names it for ever; the pid alone does not."""

    def __init__(self, pid: int, data: bytes) -> None:
        head, _, tail = data.rpartition(b")")  # a command name may hold ") "
        fields = tail.split()
        self.pid, self.ppid, self.pgrp, self.start = pid, int(fields[1]), int(fields[2]), int(fields[19])
        self.state = fields[0].decode()
        self.comm = head.partition(b"(")[2].decode(errors="backslashreplace")

    def listed(self) -> dict[str, Any]:
        """For the exit record: never the command line, it may hold secrets."""
        return {"pid": self.pid, "start_time": self.start, "comm": self.comm, "state": self.state}


def slurp(path: str) -> bytes:
    """The whole of a /proc file, which has no size to ask for."""
    fd = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC)
    try:
        return read_all(fd, SPEC_MAX, PAGE)
    finally:
        posix.close(fd)


def read_all(fd: int, limit: int, block_size: int = BLOCK) -> bytes:
    """Up to EOF, or a little more than `limit`."""
    data = bytearray()
    while len(data) <= limit and (block := posix.read(fd, block_size)):
        data += block
    return bytes(data)


def read_stat(pid: int) -> Stat | None:
    """None where there is no such process any more."""
    try:
        return Stat(pid, slurp(f"/proc/{pid}/stat"))
    except (OSError, IndexError, ValueError):
        return None


def hidden_stat(pid: int, ppid: int) -> Stat | None:
    """Describe a living child that /proc does not show: with hidepid= one that made itself undumpable. None: it has ended."""
    try:
        posix.kill(pid, 0)
        return Stat(pid, b"(?) ? %d %d" % (ppid, posix.getpgid(pid)) + b" 0" * 17)
    except OSError:
        return None


def children_of(pid: int) -> list[int]:
    """Straight from the kernel's list, for each thread: reads nothing of the rest of the machine."""
    found = []
    for tid in posix.listdir(f"/proc/{pid}/task"):
        found += [int(child) for child in slurp(f"/proc/{pid}/task/{tid}/children").split()]
    return found


def children_by_scan() -> dict[int, list[int]]:
    """For kernels without CONFIG_PROC_CHILDREN: everybody's parent."""
    table: dict[int, list[int]] = {}
    for name in posix.listdir("/proc"):
        if name.isdigit() and (stat := read_stat(int(name))):
            table.setdefault(stat.ppid, []).append(stat.pid)
    return table


def descendants(root: int) -> list[Stat]:
    """All below `root`, parents before their children, zombies included. One look may miss a fork that is under way."""
    try:
        children_of(root)
        table = None
    except OSError:
        table = children_by_scan()
    found, queue = [], [root]
    for pid in queue:
        try:
            children = children_of(pid) if table is None else table.get(pid, [])
        except OSError:
            continue  # gone meanwhile; its children are the subreaper's now, and the caller looks again
        stats = [stat for child in children if (stat := read_stat(child) or hidden_stat(child, pid)) is not None]
        found += stats
        queue += [stat.pid for stat in stats]
    return found


def comes_from(pid: int, roots: tuple[int, ...]) -> bool:
    """Tell whether `pid` is one of `roots` or may have been started by one. This is the rule of clisup/host/sockets/peers.py."""
    for _ in range(DEPTH_MAX):
        marked = is_marked(pid) if pid > 0 else None
        if pid <= 0 or pid in roots or marked:
            return True
        if pid == 1:
            return False
        stat = read_stat(pid)
        if stat is None:
            return unseen(pid, marked)
        pid = stat.ppid or 1  # no parent here: it came from outside of this pid namespace
    return True


def unseen(pid: int, marked: bool | None) -> bool:
    """Judge a process that /proc does not show. With hidepid= that may be the daemon, which cannot be dumped: it has no mark."""
    try:
        posix.kill(pid, 0)
    except PermissionError:
        return False  # another user's, which no process of the run can be
    except OSError:
        return True
    return marked is None


def is_marked(pid: int) -> bool | None:
    """Tell whether a keeper started this process or one of its ancestors (`Child.mark`). None where the kernel does not tell."""
    try:
        limit = resource.prlimit(pid, MARK)[1]
    except OSError:
        return None
    return limit != UNLIMITED and (OWN_LIMIT == UNLIMITED or limit < OWN_LIMIT)


def send_signal(stat: Stat, number: int) -> None:
    """Signal exactly the process that was seen: the pidfd pins it, then the start time proves it is the same one.

    Of a hidden process its parent's list of children proves that.
    """
    try:
        fd = posix.pidfd_open(stat.pid)
    except OSError:
        return
    try:
        now = read_stat(stat.pid) if stat.start else hidden_stat(stat.pid, stat.ppid)
        same = now is not None and now.start == stat.start
        if same and (stat.start or stat.pid in children_of(stat.ppid)):
            quiet(_signal.pidfd_send_signal, fd, number)
    except OSError:
        pass  # the parent has ended: the next look finds the child below another one
    finally:
        posix.close(fd)


# --- the run directory ------------------------------------------------------------------------------------------------


def draft_of(name: str) -> str:
    """Return the name of a file while it is written. The pid tells `clisup gc` when its writer is gone."""
    return f"{name}.{posix.getpid()}.tmp"


class RunDir:
    """All paths are relative to one descriptor: the directory cannot be swapped, and a socket's name stays short."""

    def __init__(self, path: str) -> None:
        try:
            self.fd = posix.open(path, posix.O_RDONLY | posix.O_DIRECTORY | posix.O_CLOEXEC)
        except OSError as error:
            raise Refused(74, kind="storage_failed", errno=error.errno, error="cannot open the run directory") from None

    def open(self, name: str, flags: int) -> int:
        return posix.open(name, flags | posix.O_CLOEXEC | posix.O_NOFOLLOW, 0o600, dir_fd=self.fd)

    def lock(self) -> None:
        """Take the run, or raise Refused. The descriptor is never closed nor opened again: a close drops the lock."""
        lock = self.open("keeper.lock", posix.O_RDWR | posix.O_CREAT)
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Refused(75, error="locked") from None
        if self.size("exit.json"):
            raise Refused(75, error="exited")
        if self.size("start.json"):  # its keeper was killed: the CLI may have run, a second one is for a new run
            raise Refused(75, error="started")

    def size(self, name: str) -> int:
        try:
            return posix.stat(name, dir_fd=self.fd, follow_symlinks=False).st_size
        except OSError:
            return 0

    def write(self, name: str, record: dict[str, Any]) -> None:
        """Replace `name` as a whole, on disk when this returns."""
        fd = self.open(draft_of(name), posix.O_WRONLY | posix.O_CREAT | posix.O_TRUNC)
        self.commit(fd, name, record)

    def reserve(self, name: str) -> int:
        """Space for a later `commit`, taken while there is some. Overwriting it in place needs no new block."""
        fd = self.open(draft_of(name), posix.O_WRONLY | posix.O_CREAT | posix.O_TRUNC)
        allocate(fd, RESERVED)
        return fd

    def commit(self, fd: int, name: str, record: dict[str, Any]) -> None:
        data = (dumps(record) + "\n").encode()
        posix.lseek(fd, 0, 0)
        write_all(fd, data)
        posix.ftruncate(fd, len(data))
        posix.fsync(fd)
        posix.rename(draft_of(name), name, src_dir_fd=self.fd, dst_dir_fd=self.fd)
        posix.fsync(self.fd)
        posix.close(fd)

    def listen(self) -> int:
        """The control socket, 0600 without a moment of anything else. The path through /proc is always short enough."""
        quiet(lambda: posix.unlink("ctl.sock", dir_fd=self.fd))
        server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_NONBLOCK | _socket.SOCK_CLOEXEC)
        mask = posix.umask(0o177)
        server.bind(f"/proc/self/fd/{self.fd}/ctl.sock")
        posix.umask(mask)
        server.listen(16)
        return server.detach()


def write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[posix.write(fd, data) :]


# --- what the CLI says ------------------------------------------------------------------------------------------------


class Stream:
    """One output of the CLI and its spool. What the disk refuses waits in `pending`, and the source is not read on."""

    def __init__(self, name: str, spool: int, quota: int) -> None:
        self.name, self.spool, self.quota = name, spool, quota
        self.source = -1  # -1: at its end
        self.size = posix.fstat(spool).st_size
        self.pending = b""
        self.error = 0  # errno of the last write, while bytes are pending
        self.dropped = 0
        self.finished = False

    def pump(self) -> int:
        """Move one block. Returns its size; 0 = nothing there, or nothing to be had now."""
        if self.source < 0 or self.pending:
            return 0
        try:
            data = self.read()
        except BlockingIOError:
            return 0
        self.take(data)
        return len(data)

    def read(self) -> bytes:
        data = posix.read(self.source, BLOCK)
        if not data:
            self.close()
        return data

    def take(self, data: bytes) -> None:
        """Over the quota the run is being ended: the rest is drained, or the CLI could not even say goodbye."""
        room = max(0, self.quota - self.size) if self.quota else len(data)
        self.dropped += len(data[room:])
        self.pending = data[:room]
        self.flush()

    def flush(self) -> None:
        self.error = 0
        while self.pending:
            try:
                written = posix.write(self.spool, self.pending)
            except OSError as error:
                self.error = error.errno or errno.EIO
                return
            self.size += written
            self.pending = self.pending[written:]

    def rest(self) -> None:
        """What is still in the pipe of a dead CLI."""
        for _ in range(REST_BLOCKS):
            if not self.pump():
                return

    def finish(self) -> None:
        """When no more will be read. Called until nothing is pending; acts once."""

    def close(self) -> None:
        if self.source >= 0:
            posix.close(self.source)
        self.source = -1


class ErrorStream(Stream):
    """stderr under a quota: its head in the spool, its tail in memory until the end, what lies between is counted."""

    def __init__(self, name: str, spool: int, limit: int) -> None:
        self.tail_max = min(limit // 2, TAIL_MAX)
        self.tail = bytearray()
        super().__init__(name, spool, limit - self.tail_max)

    def take(self, data: bytes) -> None:
        room = max(0, self.quota - self.size) if self.quota else len(data)
        self.tail += data[room:]
        surplus = max(0, len(self.tail) - self.tail_max)
        del self.tail[:surplus]  # from the front: CPython moves a pointer, not the bytes
        self.dropped += surplus
        self.pending = data[:room]
        self.flush()

    def finish(self) -> None:
        if self.finished or self.pending:
            return
        self.finished = True
        note = f"\n[clisup: {self.dropped} bytes of stderr dropped]\n".encode() if self.dropped else b""
        self.pending = note + bytes(self.tail)
        self.tail.clear()
        self.flush()


class FileStream(Stream):
    """stdout of a CLI that loses unread pipe data at its exit: it writes to a file, which is copied from."""

    shrunk = False
    offset = 0

    def read(self) -> bytes:
        if posix.fstat(self.source).st_size < self.offset:
            # A tool's `> /dev/stdout`. What it cut off is copied already; what comes after it starts at 0.
            self.shrunk, self.offset = True, 0
        data = posix.pread(self.source, BLOCK, self.offset)
        self.offset += len(data)
        return data

    def rest(self) -> None:
        """To the end as it is now: an orphan that is kept may write for ever."""
        end = posix.fstat(self.source).st_size if self.source >= 0 else 0
        while self.offset < end and self.pump():
            pass


class Feed:
    """stdin of the CLI: messages are written whole and in order, and each id at most once."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.queue: deque[tuple[int | None, bytes | None]] = deque()  # data None = EOF
        self.left = memoryview(b"")  # of the message at the head: cut without copies
        self.queued = 0  # bytes
        self.last_taken = self.last_written = 0
        self.refused = 0  # the first id that found no room: later ones must not overtake it
        self.error: str | None = None

    def take(self, number: int | None, data: bytes | None) -> str | None:
        """Queue it; returns why not. The ack comes out of `write`."""
        if self.fd < 0:
            return self.error or "closed"
        if self.queue and self.queue[-1][1] is None:
            return "closed"
        if self.queued + len(data or b"") > QUEUE_MAX or (number and 0 < self.refused < number):
            self.refused = self.refused or number or 0
            return "full"
        self.refused, self.last_taken = 0, number or self.last_taken
        self.queue.append((number, data))
        self.queued += len(data or b"")
        if len(self.queue) == 1:
            self.left = memoryview(data or b"")
        return None

    def write(self) -> list[int]:
        """As much as the pipe takes; returns the ids whose last byte is in it. Sets `error` where the CLI shut it."""
        done: list[int] = []
        while self.queue:
            number, data = self.queue[0]
            try:
                while self.left:
                    written = posix.write(self.fd, self.left)
                    self.left, self.queued = self.left[written:], self.queued - written
            except BlockingIOError:
                break
            except OSError as error:
                self.error = errno.errorcode.get(error.errno or 0, "EIO")
                break
            self.shift()
            if data is None:
                self.close()
            if number is not None:
                self.last_written = number
                done.append(number)
        return done

    def shift(self) -> None:
        self.queue.popleft()
        self.left = memoryview((self.queue[0][1] or b"") if self.queue else b"")

    def abandon(self) -> list[int]:
        """Close it; returns the ids that will never be written whole."""
        lost = [number for number, _ in self.queue if number is not None]
        self.queue.clear()
        self.left, self.queued = memoryview(b""), 0
        self.close()
        return lost

    def close(self) -> None:
        if self.fd >= 0:
            posix.close(self.fd)
        self.fd = -1


# --- the child --------------------------------------------------------------------------------------------------------


def check_executable(path: str) -> None:
    """Raise SpawnFailed for what would clear PDEATHSIG at its exec: the CLI could then outlive a killed keeper."""
    try:
        mode = posix.stat(path).st_mode
    except OSError:
        return  # exec reports it better
    if mode & 0o6000:
        raise SpawnFailed("check", errno.EPERM, f"cannot run {path}: it is set-uid or set-gid")
    try:
        posix.getxattr(path, "security.capability")
    except OSError:
        return
    raise SpawnFailed("check", errno.EPERM, f"cannot run {path}: it has file capabilities")


class Child:
    """Between fork and exec, in the child. Each step sets `stage` first, which is what a failure reports."""

    def __init__(self, spec: dict[str, Any], stdio: tuple[int, int, int], report: int) -> None:
        self.spec, self.stdio, self.report = spec, stdio, report
        self.keeper = posix.getpid()
        self.placed = False  # in its cgroup from its birth
        self.stage = "setup"

    def fork(self) -> int:
        """The child's pid, and 0 in the child. Raises OSError."""
        if self.spec["cgroup"]:
            try:
                self.placed = True
                return fork_into(self.spec["cgroup"])
            except OSError:
                self.placed = False  # it goes there by itself, or says why it cannot
        return posix.fork()

    def run(self) -> NoReturn:
        try:
            self.bind_to_keeper()
            self.reset_signals()
            self.mark()
            self.arrange_files()
            self.place()
            self.stage = "exec"
            posix.execve(self.spec["argv"][0], self.spec["argv"], self.spec["env"])
        except BaseException as error:  # the child has no other way to say anything
            number = getattr(error, "errno", None) or errno.EINVAL
            quiet(posix.write, self.report, f"{self.stage}:{number}".encode())
        finally:
            posix._exit(127)

    def bind_to_keeper(self) -> None:
        posix.setsid()
        prctl(PR_SET_PDEATHSIG, _signal.SIGKILL)
        if posix.getppid() != self.keeper:  # it died before the line above
            posix._exit(127)

    def reset_signals(self) -> None:
        for number in range(1, _signal.NSIG):
            if _signal.getsignal(number) == _signal.SIG_IGN:  # what is caught the exec makes default by itself
                quiet(_signal.signal, number, _signal.SIG_DFL)
        _signal.pthread_sigmask(_signal.SIG_SETMASK, [])

    def mark(self) -> None:
        """Lower the limit by which daemon and keeper know what a CLI has started, wherever it is by now."""
        soft, hard = resource.getrlimit(MARK)
        limit = MARKED if hard == UNLIMITED else max(0, hard - 1)
        resource.setrlimit(MARK, (limit if soft == UNLIMITED else min(soft, limit), limit))

    def arrange_files(self) -> None:
        self.stage = "stdio"
        for target, fd in enumerate(self.stdio):
            posix.dup2(fd, target)
        if self.report != 3:
            posix.dup2(self.report, 3, inheritable=False)
            self.report = 3
        close_from(4)

    def place(self) -> None:
        """Where and how it runs: out-of-memory score (raised only), cgroup, umask, directory."""
        self.stage = "oom_score_adj"
        if self.spec["oom_score_adj"] > int(slurp("/proc/self/oom_score_adj")):
            prctl(PR_SET_DUMPABLE, 1)  # an undumpable process's files in /proc are root's; the exec would do it anyway
            write_file("/proc/self/oom_score_adj", str(self.spec["oom_score_adj"]))
        self.stage = "cgroup"
        if self.spec["cgroup"] and not self.placed:
            write_file(self.spec["cgroup"] + "/cgroup.procs", "0")
        posix.umask(self.spec["umask"])
        self.stage = "chdir"
        posix.chdir(self.spec["cwd"])


def write_file(path: str, text: str) -> None:
    fd = posix.open(path, posix.O_WRONLY | posix.O_CLOEXEC)
    try:
        posix.write(fd, text.encode())
    finally:
        posix.close(fd)


def wait_for_exec(pid: int, report: int, argv0: str) -> None:
    """Return when the exec has happened (EOF of the close-on-exec pipe), else reap the child and raise SpawnFailed."""
    poller = select.poll()
    poller.register(report, select.POLLIN)
    late = not poller.poll(EXEC_S * 1000)
    failure = b"" if late else posix.read(report, 256)
    posix.close(report)
    if not late and not failure:
        return
    posix.kill(pid, _signal.SIGKILL)
    posix.waitpid(pid, posix.WNOHANG if late else 0)
    stage, _, number = failure.decode().partition(":") if failure else ("timeout", ":", str(errno.ETIMEDOUT))
    why = posix.strerror(int(number))
    raise SpawnFailed(stage, int(number), f"cannot run {argv0}: {why} ({stage})")


def attest(pid: int, env: dict[bytes, bytes]) -> bool | None:
    """Does the kernel show the environment that was asked for? None: gone too soon, or not to be seen."""
    expected = sorted(name + b"=" + value for name, value in env.items())
    end = time.monotonic() + ATTEST_S
    while True:
        stat = read_stat(pid)
        if stat is None or stat.state in "ZX":
            return None
        try:
            seen = slurp(f"/proc/{pid}/environ")
        except OSError:
            return None
        if seen or not expected:
            return sorted(seen.split(b"\0")[:-1]) == expected
        if time.monotonic() > end:
            return None
        time.sleep(0.0002)


# --- the launch spec --------------------------------------------------------------------------------------------------


def read_spec() -> dict[str, Any]:
    """The spec from stdin, checked, with argv and env as bytes. Raises Refused; messages name keys, never values."""
    data = read_all(0, SPEC_MAX)
    try:
        spec = DEFAULTS | loads(data)
        check_spec(spec)
        spec["argv"] = [encoded(item) for item in spec["argv"]]
        marked = spec["env"] | spec["marker"]
        spec["env"] = {encoded(name): encoded(value) for name, value in marked.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = error.args[0] if isinstance(error, Garbage) else "a value has the wrong shape"
        raise Refused(65, kind="bad_spec", error=f"cannot read the launch spec: {reason}") from None
    return spec


def check_spec(spec: dict[str, Any]) -> None:
    for key, kind in REQUIRED.items():
        if type(spec.get(key)) is not kind:
            raise Garbage(f"{key} is missing or no {kind.__name__}")
    if spec["proto"] != PROTO:
        raise Garbage(f"proto is not {PROTO}")
    if not spec["argv"] or not spec["argv"][0].startswith("/"):
        raise Garbage("argv[0] is no absolute path")
    if spec["stdout_mode"] not in ("pipe", "file") or spec["orphans"] not in ("grace", "kill", "keep"):
        raise Garbage("stdout_mode or orphans is unknown")
    if any(not name or "=" in name for name in spec["env"] | spec["marker"]):
        raise Garbage("env has a name that is empty or holds '='")
    if spec["stdin"] is not None:
        spec["stdin"] = spec["stdin"].encode()
    for key in ("wall_s", "lease_s", "term_grace_s", "int_grace_s", "orphan_grace_s"):
        spec[key] = seconds(spec, key, limit=366 * DAY_S)


def encoded(text: str) -> bytes:
    data = text.encode("utf-8", "surrogateescape")
    if b"\0" in data:
        raise Garbage("argv or env holds a NUL")
    return data


def field(message: dict[str, Any], key: str, kind: type) -> Any:
    """The value if it is exactly of this type (True is no id), else Garbage."""
    value = message.get(key)
    if type(value) is not kind:
        raise Garbage(f"{key} is no {kind.__name__}")
    return value


def seconds(message: dict[str, Any], key: str, limit: float = DAY_S) -> float:
    value: Any = message.get(key)
    if type(value) not in (int, float) or not value >= 0:
        raise Garbage(f"{key} is no number of seconds")
    return min(float(value), limit)


# --- the daemon's connection ------------------------------------------------------------------------------------------


class Link:
    """One connection of newline-delimited JSON, never waited for in either direction."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.closed_at = time.monotonic()  # where the lease begins, once it is closed
        self.greeted = False
        self.hung_up = False  # the peer takes no more; what it said before it left is still to be read
        self.incoming = bytearray()
        self.outgoing = bytearray()

    def read(self) -> list[dict[str, Any]]:
        """The whole messages that have come. Raises Garbage; closes itself at EOF."""
        try:
            data = posix.read(self.fd, BLOCK)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            self.close()
            return []
        if b"\n" not in data:
            self.incoming += data
            if len(self.incoming) > LINE_MAX:
                raise Garbage("line too long")
            return []
        *lines, rest = data.split(b"\n")
        lines[0] = bytes(self.incoming) + lines[0]
        self.incoming = bytearray(rest)
        return [loads(line) for line in lines]

    def send(self, message: dict[str, Any]) -> None:
        self.send_line((dumps(message) + "\n").encode())

    def send_line(self, line: bytes) -> None:
        if self.fd >= 0 and not self.hung_up:
            self.outgoing += line
            self.flush()

    def flush(self) -> None:
        try:
            while self.outgoing:
                del self.outgoing[: posix.write(self.fd, self.outgoing)]
        except BlockingIOError:
            if len(self.outgoing) > OUTGOING_MAX:
                self.close()
        except OSError:  # not closed yet: a daemon's last word before it is killed may be the order to end
            self.hung_up = True
            self.outgoing.clear()

    def close(self) -> None:
        if self.fd >= 0:
            posix.close(self.fd)
            self.closed_at = time.monotonic()
        self.fd = -1
        self.outgoing.clear()


def may_speak(fd: int, roots: tuple[int, ...]) -> bool:
    """Our own user or root, and no process of the run itself: a model's tool could feed or end its own CLI."""
    peer = _socket.socket(fileno=fd)
    try:
        credentials = peer.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
    finally:
        peer.detach()
    pid, uid = (int.from_bytes(credentials[at : at + 4], sys.byteorder, signed=True) for at in (0, 4))
    return uid in (0, posix.getuid()) and not comes_from(pid, roots)


# --- the keeper -------------------------------------------------------------------------------------------------------


class Keeper:
    """The state of one run, and the loop over it. Phases: running -> draining -> waiting -> flushing -> over."""

    def __init__(self, spec: dict[str, Any], run: RunDir) -> None:
        self.spec, self.run = spec, run
        self.pid, self.main = posix.getpid(), -1
        self.main_start: int | None = None
        self.attested: bool | None = None
        self.status: int | None = None  # of the CLI, as wait4 gave it
        self.usage: resource.struct_rusage | None = None
        self.childless = False
        self.phase = RUNNING
        self.phase_until = 0.0
        self.started = self.exited = time.monotonic()
        self.reason = "exit"
        self.steps: deque[tuple[str, float]] = deque()
        self.step_at: float | None = None  # when the next step of the ladder is due; None: no ladder
        self.sent: list[tuple[str, float]] = []
        self.retry_at: float | None = None
        self.copy_at = self.home_seen_at = 0.0
        self.terminated = False
        self.lists: dict[str, dict[tuple[int, int], dict[str, Any]]] = {"survivors": {}, "left": {}, "kept": {}}
        self.spawn_failed: dict[str, Any] | None = None
        self.fault: str | None = None
        self.link = Link(-1)
        self.window, self.unseen, self.last_grew = 1, 0, (0, 0)
        self.record: dict[str, Any] | None = None

    # -- start

    def prepare(self) -> None:
        """Everything that can fail without a CLI, before the mark that one may have run. Raises OSError."""
        limits = {"spool_bytes": 0, "stderr_bytes": 0} | self.spec["limits"]
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        append = posix.O_WRONLY | posix.O_APPEND | posix.O_CREAT
        kind = FileStream if self.spec["stdout_mode"] == "file" else Stream
        self.out = kind("out", self.run.open("out.spool", append), limits["spool_bytes"])
        self.err = (ErrorStream if limits["stderr_bytes"] else Stream)(
            "err", self.run.open("err.spool", append), limits["stderr_bytes"]
        )
        self.streams = (self.out, self.err)
        self.watch_signals()
        self.listener = self.run.listen()
        self.exit_fd = self.run.reserve("exit.json")
        self.identity = {
            "proto": PROTO, "keeper_pid": self.pid, "keeper_start_time": self.my_start(),
            "boot_id": slurp("/proc/sys/kernel/random/boot_id").decode().strip(), "marker": self.spec["marker"],
        }  # fmt: skip
        self.mark("spawning")

    def my_start(self) -> int | None:
        stat = read_stat(self.pid)
        return stat.start if stat else None

    def mark(self, stage: str, **more: Any) -> None:
        self.run.write("start.json", {**self.identity, "stage": stage, **more})

    def watch_signals(self) -> None:
        """A caught signal writes a byte into a pipe that is polled. What the parent ignored or blocked is undone."""
        self.wake, wake = posix.pipe2(posix.O_NONBLOCK | posix.O_CLOEXEC)
        _signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        _signal.signal(_signal.SIGCHLD, lambda *_: None)
        _signal.signal(_signal.SIGTERM, lambda *_: setattr(self, "terminated", True))
        for number in (_signal.SIGHUP, _signal.SIGINT, _signal.SIGPIPE):
            _signal.signal(number, _signal.SIG_IGN)
        _signal.pthread_sigmask(_signal.SIG_SETMASK, [])

    def spawn(self) -> None:
        """Fork and wait for the exec. Raises SpawnFailed, then nothing runs."""
        argv0 = self.spec["argv"][0].decode(errors="backslashreplace")
        check_executable(argv0)
        stdin, feed = posix.pipe2(posix.O_CLOEXEC)
        self.err.source, stderr = posix.pipe2(posix.O_CLOEXEC)
        self.out.source, stdout = self.stdout_ends()
        report, reported = posix.pipe2(posix.O_CLOEXEC)
        for fd in (feed, self.err.source, self.out.source):
            posix.set_blocking(fd, False)  # our ends only: the flag belongs to the open file, not to the pipe
        self.feed = Feed(feed)
        child = Child(self.spec, (stdin, stdout, stderr), reported)
        # Blocked over the fork: our handlers must not run in the child.
        _signal.pthread_sigmask(_signal.SIG_SETMASK, _signal.valid_signals())  # a range warns of 32 and 33: 100 kB
        self.started = time.monotonic()
        try:
            self.main = child.fork()
        except OSError as error:
            number = error.errno or errno.EAGAIN
            raise SpawnFailed("fork", number, f"cannot run {argv0}: {posix.strerror(number)} (fork)") from None
        if self.main == 0:
            child.run()
        _signal.pthread_sigmask(_signal.SIG_SETMASK, [])
        for fd in (stdin, stdout, stderr, reported):
            posix.close(fd)
        wait_for_exec(self.main, report, argv0)

    def stdout_ends(self) -> tuple[int, int]:
        if not isinstance(self.out, FileStream):
            return posix.pipe2(posix.O_CLOEXEC)
        theirs = self.run.open("out.raw", posix.O_WRONLY | posix.O_APPEND | posix.O_CREAT | posix.O_EXCL)
        return self.run.open("out.raw", posix.O_RDONLY), theirs

    def settle(self) -> dict[str, Any]:
        """After the exec: who runs, with which environment. Returns the line for the daemon."""
        stat = read_stat(self.main)
        self.main_start = stat.start if stat else None
        self.attested = attest(self.main, self.spec["env"])
        who = {"pid": self.main, "start_time": self.main_start, "env_attested": self.attested}
        quiet(lambda: self.mark("running", **who))
        if self.spec["stdin"]:
            self.feed.take(None, self.spec["stdin"])
        if self.spec["stdin_eof"]:
            self.feed.take(None, None)
        for secret in ("env", "argv", "stdin"):
            del self.spec[secret]
        return {"ready": True, **who}

    # -- the loop

    def loop(self) -> None:
        """Until the record is written and the daemon has read it. What to wait for is worked out anew whenever anything
        that it depends on has changed: a poll set that is kept for longer can go stale."""
        basis: tuple[object, ...] | None = None
        while self.phase != OVER or (self.link.fd >= 0 and time.monotonic() < self.phase_until):
            if basis != (now := self.basis()):
                basis, handlers = now, self.interests()
                poller = select.poll()
                for fd, (events, _) in handlers.items():
                    poller.register(fd, events)
            for fd, _ in poller.poll(self.timeout()):
                handlers[fd][1]()
            self.tick(time.monotonic())

    def basis(self) -> tuple[object, ...]:
        """All that `interests` looks at."""
        link, feed, out, err = self.link, self.feed, self.out, self.err
        return (link.fd, not link.outgoing, feed.fd, not feed.queue, out.source, not out.pending, err.source, not err.pending,
                self.phase)  # fmt: skip

    def interests(self) -> dict[int, tuple[int, Callable[[], None]]]:
        wanted = {self.wake: (select.POLLIN, self.on_wake), self.listener: (select.POLLIN, self.on_connect)}
        if self.link.fd >= 0:
            more = select.POLLOUT if self.link.outgoing else 0
            wanted[self.link.fd] = (select.POLLIN | more, self.on_link)
        if self.feed.fd >= 0 and self.feed.queue:
            wanted[self.feed.fd] = (select.POLLOUT, self.on_feed)
        for stream in self.streams:
            if stream.source >= 0 and not stream.pending and not isinstance(stream, FileStream) and self.phase != OVER:
                wanted[stream.source] = (select.POLLIN, self.pumper(stream))
        return wanted

    def pumper(self, stream: Stream) -> Callable[[], None]:
        return lambda: self.moved(stream.pump())

    def timeout(self) -> float | None:
        """Milliseconds to the next deadline, None where nothing is armed: an idle keeper never wakes."""
        due = [self.retry_at, self.step_at]
        if self.phase != RUNNING:
            due.append(self.phase_until)
        elif self.step_at is None:
            due += [self.alone_until("wall_s"), self.alone_until("lease_s"), self.home_look_at()]
        if isinstance(self.out, FileStream) and self.phase in (RUNNING, DRAINING, WAITING) and not self.out.pending:
            due.append(self.copy_at)
        armed = [at for at in due if at is not None]
        # One more than asked for: poll cuts to whole milliseconds, and would spin through the last one.
        return min(DAY_S, max(0.0, min(armed) - time.monotonic())) * 1000 + 1 if armed else None

    def alone_until(self, limit: str) -> float | None:
        """Both limits are for a run without a daemon, and count from when it left: one that is there has limits of its own,
        which know of a full disk and of the CLI's follow-ups."""
        alone = self.link.fd < 0 and self.spec[limit]
        return self.link.closed_at + self.spec[limit] if alone else None

    def home_look_at(self) -> float | None:
        """When to look whether the run directory is still there: as soon as the daemon has left, and now and then after that."""
        if self.link.fd >= 0:
            return None
        return self.link.closed_at if self.home_seen_at < self.link.closed_at else self.home_seen_at + HOME_LOOK_S

    def tick(self, now: float) -> None:
        """Deadlines. They come after the events: a keeper that was stopped first reads what came meanwhile."""
        if self.terminated:
            self.terminated = False
            self.end("operator", self.default_ladder())
        if self.retry_at is not None and now >= self.retry_at:
            self.retry()
        if isinstance(self.out, FileStream) and now >= self.copy_at and self.phase in (RUNNING, DRAINING, WAITING):
            self.copy_file(now)
        self.check_ladder(now)
        advance = {RUNNING: self.run_on, DRAINING: self.drain_on, WAITING: self.wait_on, FLUSHING: self.flush_on}
        if self.phase in advance:
            advance[self.phase](now)

    def run_on(self, now: float) -> None:
        wall, lease = self.alone_until("wall_s"), self.alone_until("lease_s")
        if self.status is not None:
            self.main_ended(now)
        elif self.step_at is not None:
            return
        elif wall is not None and now >= wall:
            self.end("watchdog:turn", self.default_ladder())
        elif lease is not None and now >= lease:
            self.end("lease", self.default_ladder())
        elif (look := self.home_look_at()) is not None and now >= look:
            self.home_seen_at = now
            if posix.fstat(self.run.fd).st_nlink == 0:  # no daemon can find this run any more: its lease is over
                self.end("lease", self.default_ladder())

    # -- output

    def moved(self, size: int) -> None:
        """After a pump: tell of growth, of a full disk, and end a run that says too much."""
        for stream in self.streams:
            if stream.error and self.retry_at is None:
                self.retry_at = time.monotonic() + RETRY_S
                self.push({"push": "blocked", "stream": stream.name, "errno": stream.error})
        if self.out.dropped and self.phase == RUNNING and self.step_at is None:
            self.end("output_limit", self.default_ladder())
        self.tell_grew()

    def retry(self) -> None:
        for stream in self.streams:
            stream.flush()
        blocked = any(stream.pending for stream in self.streams)
        self.retry_at = time.monotonic() + RETRY_S if blocked else None
        if not blocked:
            self.push({"push": "unblocked"})
        self.tell_grew()

    def copy_file(self, now: float) -> None:
        was_shrunk, self.copy_at = self.shrunk(), now + COPY_S
        for _ in range(COPY_BLOCKS):
            if not self.out.pump():
                break
        else:
            self.copy_at = now
        if self.shrunk() and not was_shrunk:
            self.push({"push": "file_shrunk"})
        self.moved(0)

    def shrunk(self) -> bool:
        return isinstance(self.out, FileStream) and self.out.shrunk

    # -- the end of a run

    def default_ladder(self) -> list[tuple[str, float]]:
        return [("TERM", self.spec["term_grace_s"])]

    def end(self, reason: str, ladder: list[tuple[str, float]]) -> None:
        """Begin the ladder. Once begun it is only ever shortened: a second call goes on to the next step now, and takes
        the shorter rest of the two (none: SIGKILL at once)."""
        now = time.monotonic()
        if self.phase in (DRAINING, WAITING):
            self.phase_until, self.spec["orphan_grace_s"] = now, 0.0
        if self.phase != RUNNING or self.status is not None:
            return
        if self.step_at is None:
            self.reason, self.steps = reason, deque(ladder)
        elif len(ladder) < len(self.steps):
            self.steps = deque(ladder)
        self.step_at = now
        self.check_ladder(now)

    def check_ladder(self, now: float) -> None:
        """The step that is due. After the last one: SIGKILL for the whole tree."""
        if self.step_at is None or now < self.step_at or self.phase != RUNNING or self.status is not None:
            return
        name, grace = self.steps.popleft() if self.steps else ("KILL", 0.0)
        self.sent.append((name, now - self.started))
        if name == "KILL":
            self.kill_tree()
            if self.status is None:
                self.main_ended(time.monotonic())
            return
        self.step_at = now + grace
        self.signal_run(SIGNALS[name], whole=name != "INT")

    def signal_run(self, number: int, whole: bool) -> None:
        """To the CLI, and then to what it started. The CLI is our child and not reaped: its pid cannot be another's."""
        if self.status is None:
            quiet(posix.kill, self.main, number)
        for stat in descendants(self.pid) if whole else ():
            if stat.pid != self.main:
                send_signal(stat, number)

    def main_ended(self, now: float) -> None:
        """The CLI is gone, or cannot be killed. Its code goes on disk at once: we may not live to write the record."""
        self.exited, self.step_at = now, None
        for number in self.feed.abandon():
            self.link.send({"nack": number, "error": "exited"})
        quiet(lambda: self.mark("main_exited", pid=self.main, start_time=self.main_start, **self.how()))
        self.push({"push": "main_exited", **self.how()})
        self.phase, self.phase_until = DRAINING, now + EOF_S
        for stream in self.streams:
            stream.rest()
        self.moved(0)
        self.drain_on(now)

    def how(self) -> dict[str, int | None]:
        """A signal and an exit code of 128 + n are told apart."""
        if self.status is None:
            return {"exit_code": None, "signal": None}
        signaled = posix.WIFSIGNALED(self.status)
        return {
            "exit_code": None if signaled else posix.WEXITSTATUS(self.status),
            "signal": posix.WTERMSIG(self.status) if signaled else None,
        }

    def drain_on(self, now: float) -> None:
        heard = all(stream.source < 0 or isinstance(stream, FileStream) for stream in self.streams)
        if not heard and now < self.phase_until and not self.childless:
            return
        # A run that was ended spares nobody: grace and keep are for a CLI that left by itself.
        patient = self.spec["orphans"] == "grace" and self.reason == "exit"
        self.phase, self.phase_until = WAITING, self.exited + self.spec["orphan_grace_s"] if patient else now
        self.wait_on(now)

    def wait_on(self, now: float) -> None:
        if not self.childless and now < self.phase_until:
            return
        if not self.childless and self.spec["orphans"] == "keep" and self.reason == "exit":
            self.note("kept", [stat for stat in descendants(self.pid) if stat.state not in "ZX"])
        elif not self.childless:
            self.kill_tree()
        self.phase, self.phase_until = FLUSHING, time.monotonic() + FLUSH_S
        self.flush_on(now)

    def flush_on(self, now: float) -> None:
        """What the pipes still hold, then the record. A disk that stays full is waited for, within a bound."""
        for stream in self.streams:
            stream.rest()
        self.err.finish()
        self.moved(0)
        if any(stream.pending for stream in self.streams) and now < self.phase_until:
            return
        try:
            self.close_record()
        except OSError as error:
            if now >= self.phase_until:
                raise
            self.fault, self.retry_at = f"OSError {error.errno}", now + RETRY_S

    def close_record(self) -> None:
        blocked = any(stream.pending for stream in self.streams)
        record = self.exit_record(blocked)
        self.run.commit(self.exit_fd, "exit.json", record)
        if isinstance(self.out, FileStream) and not blocked:
            quiet(lambda: posix.unlink("out.raw", dir_fd=self.run.fd))  # its bytes are in the spool
        self.record = record
        self.phase, self.phase_until = OVER, time.monotonic() + LINGER_S
        self.retry_at = None
        self.push({"push": "exited", "exit": record})

    def exit_record(self, blocked: bool) -> dict[str, Any]:
        usage = self.usage
        return {
            "proto": PROTO, **self.how(), "reason": self.reason, "ladder": self.sent,
            **{name: list(found.values())[:LISTED_MAX] for name, found in self.lists.items()},
            "unlisted": sum(max(0, len(found) - LISTED_MAX) for found in self.lists.values()),
            "duration_s": self.exited - self.started, "t_exit_monotonic": self.exited,
            "out": self.out.size, "err": self.err.size,
            "out_dropped": self.out.dropped, "err_dropped": self.err.dropped,
            "max_rss_kb": usage.ru_maxrss if usage else None,
            "user_s": usage.ru_utime if usage else None, "system_s": usage.ru_stime if usage else None,
            "stdin_error": self.feed.error if hasattr(self, "feed") else None, "blocked": blocked,
            "file_shrunk": self.shrunk(), "env_attested": self.attested, "spawn_failed": self.spawn_failed,
            "keeper_fault": self.fault,
        }  # fmt: skip

    # -- killing

    def kill_tree(self) -> None:
        """SIGKILL until no descendant is left, bounded. Not left to the loop: a process that forks as fast as it is
        killed is caught only by looking again at once."""
        end = time.monotonic() + KILL_S
        cgroup = self.kill_cgroup()
        seen: set[tuple[int, int]] = set()
        while True:
            self.reap()
            if self.childless and not (cgroup and self.populated(cgroup)):
                return
            alive = [stat for stat in descendants(self.pid) if stat.state not in "ZX"]
            if time.monotonic() > end:
                self.note("left", alive)
                return
            self.note_doomed(alive)
            self.kill_all(alive)
            fresh = {(stat.pid, stat.start) for stat in alive} - seen
            seen |= fresh
            if not fresh:
                time.sleep(0.001)

    def kill_all(self, alive: list[Stat]) -> None:
        """Each process and each group. A group of a descendant holds descendants only: it lies within a session that
        one of them began with setsid, and whoever loses a parent becomes ours. Our own group is the one exception."""
        for group in {stat.pgrp for stat in alive} - {0, 1, posix.getpgrp()}:
            quiet(posix.kill, -group, _signal.SIGKILL)
        for stat in alive:
            send_signal(stat, _signal.SIGKILL)

    def kill_cgroup(self) -> str | None:
        """Returns the cgroup if it takes a kill, and does not hold ourselves."""
        path: str | None = self.spec["cgroup"]
        if not path:
            return None
        try:
            if str(self.pid).encode() in slurp(path + "/cgroup.procs").split():
                return None
            self.name_doomed(path)
            write_file(path + "/cgroup.kill", "1")
        except OSError:
            return None
        return path

    def name_doomed(self, cgroup: str) -> None:
        """For the exit record: nobody is left to be named once `cgroup.kill` was written. Frozen first, or a tree that
        forks faster than we read would be named wrongly and could keep us reading; a frozen process still dies."""
        quiet(write_file, cgroup + "/cgroup.freeze", "1")
        known = descendants(self.pid)
        strangers = {int(pid) for pid in slurp(cgroup + "/cgroup.procs").split()} - {stat.pid for stat in known}
        known += [stat for stat in map(read_stat, strangers) if stat is not None]
        self.note_doomed([stat for stat in known if stat.state not in "ZX"])

    def note_doomed(self, stats: list[Stat]) -> None:
        """All but the CLI itself, where it is what ends: survivors are what it left."""
        self.note("survivors", [stat for stat in stats if stat.pid != self.main or self.status is not None])

    def populated(self, cgroup: str) -> bool:
        try:
            return b"populated 1" in slurp(cgroup + "/cgroup.events")
        except OSError:
            return False

    def note(self, name: str, stats: list[Stat]) -> None:
        for stat in stats:
            self.lists[name].setdefault((stat.pid, stat.start), stat.listed())

    def reap(self) -> None:
        """All that ended, ours by birth or by adoption. `childless` means that the whole tree is gone: whoever still
        lived would have become our child."""
        while not self.childless:
            try:
                pid, status, usage = posix.wait4(-1, posix.WNOHANG)
            except ChildProcessError:
                self.childless = True
                return
            if pid == 0:
                return
            if pid == self.main:
                self.status, self.usage = status, usage

    # -- what the poll brings

    def on_wake(self) -> None:
        quiet(posix.read, self.wake, BLOCK)
        self.reap()

    def on_feed(self) -> None:
        for number in self.feed.write():
            self.link.send({"ack": number})
        if self.feed.error:
            for number in self.feed.abandon():
                self.link.send({"nack": number, "error": self.feed.error})
            self.push({"push": "stdin_error", "error": self.feed.error})
        if not self.feed.queue:
            give_back()

    def on_connect(self) -> None:
        """A new connection drops the old one first: at most one daemon ever has an answer."""
        server = _socket.socket(fileno=self.listener)
        try:
            fd, _ = server._accept()  # type: ignore[attr-defined]
        except OSError:
            return
        finally:
            server.detach()
        posix.set_inheritable(fd, False)
        posix.set_blocking(fd, False)
        if not may_speak(fd, (self.pid, self.main)):
            posix.close(fd)
            return
        self.link.close()
        self.link = Link(fd)

    def on_link(self) -> None:
        link = self.link
        link.flush()
        try:
            for message in link.read() if link.fd >= 0 else ():
                self.handle(link, message)
        except ValueError:  # Garbage, and text that is no UTF-8
            link.close()

    def handle(self, link: Link, message: dict[str, Any]) -> None:
        op = field(message, "op", str)
        if not link.greeted and op != "hello":
            raise Garbage("hello comes first")
        if op in self.OPS:
            self.OPS[op](self, link, message)
        else:
            link.send({"error": "unknown_op", "op": op[:64]})  # of a newer daemon, perhaps

    # -- operations

    def do_hello(self, link: Link, message: dict[str, Any]) -> None:
        window = message.get("window", 1)  # a daemon of before it knew the word takes one at a time
        self.window = min(max(window, 1), WINDOW_MAX) if type(window) is int else 1
        link.greeted, self.unseen, self.last_grew = True, 0, (self.out.size, self.err.size)
        ending = self.step_at is not None or self.phase != RUNNING
        link.send({"hello": {
            "proto": PROTO, "pid": self.main, "start_time": self.main_start, "keeper_pid": self.pid,
            "last_id": self.feed.last_written, "last_taken": self.feed.last_taken, "out": self.out.size, "err": self.err.size,
            "state": "exited" if self.phase == OVER else "ending" if ending else "running",
            "blocked": any(stream.pending for stream in self.streams), "stdin_error": self.feed.error, "window": self.window,
        }})  # fmt: skip
        if self.record is not None:
            link.send({"push": "exited", "exit": self.record})

    def do_stdin(self, link: Link, message: dict[str, Any]) -> None:
        """An id that was written is acked again; one that is still queued will be; neither is written twice."""
        number = field(message, "id", int)
        text = None if message["op"] == "eof" else field(message, "data", str)
        if number < 1:
            raise Garbage("ids begin at 1")
        if number <= self.feed.last_written:
            link.send({"ack": number})
        elif number > self.feed.last_taken or self.feed.fd < 0:
            error = self.take_input(number, text)
            if error:
                link.send({"nack": number, "error": error})

    def take_input(self, number: int, text: str | None) -> str | None:
        if self.status is not None:
            return "exited"
        try:
            return self.feed.take(number, None if text is None else text.encode())
        except UnicodeEncodeError:
            return "encoding"

    def do_signal(self, link: Link, message: dict[str, Any]) -> None:
        number, target = SIGNALS.get(field(message, "signal", str)), message.get("target", "main")
        if number is None or target not in ("main", "tree"):
            raise Garbage("no such signal or target")
        self.signal_run(number, whole=target == "tree")

    def do_end(self, link: Link, message: dict[str, Any]) -> None:
        ladder = self.default_ladder()
        if self.spec["int_grace_s"]:
            ladder.insert(0, ("INT", self.spec["int_grace_s"]))
        if "ladder" in message:
            ladder = [self.step(item) for item in field(message, "ladder", list)[:LADDER_MAX]]
        self.end(str(message.get("reason", "client"))[:128], ladder)

    def step(self, item: Any) -> tuple[str, float]:
        if type(item) is not list or len(item) != 2 or item[0] not in SIGNALS:
            raise Garbage("a step is [signal, seconds]")
        return item[0], seconds({"grace": item[1]}, "grace")

    def do_orphans(self, link: Link, message: dict[str, Any]) -> None:
        self.spec["orphan_grace_s"] = seconds(message, "grace_s")
        if self.phase == WAITING and self.spec["orphans"] == "grace":
            self.phase_until = self.exited + self.spec["orphan_grace_s"]

    def do_survivors(self, link: Link, message: dict[str, Any]) -> None:
        living = [stat for stat in descendants(self.pid) if stat.state not in "ZX" and stat.pid != self.main]
        link.send({"survivors": [stat.listed() for stat in living[:LISTED_MAX]], "total": len(living)})

    def do_seen(self, link: Link, message: dict[str, Any]) -> None:
        self.unseen = 0
        self.tell_grew()

    OPS: ClassVar[dict[str, Callable[[Keeper, Link, dict[str, Any]], None]]] = {
        "hello": do_hello, "stdin": do_stdin, "eof": do_stdin, "signal": do_signal, "end": do_end,
        "orphans": do_orphans, "survivors": do_survivors, "seen": do_seen,
    }  # fmt: skip

    def tell_grew(self) -> None:
        """A window of them may be outstanding: a daemon that sleeps costs nothing, and none is lost since `seen` asks again."""
        sizes = (self.out.size, self.err.size)
        if self.link.greeted and self.unseen < self.window and sizes != self.last_grew:
            self.unseen, self.last_grew = self.unseen + 1, sizes
            self.link.send_line(b'{"push": "grew", "out": %d, "err": %d}\n' % sizes)

    def push(self, message: dict[str, Any]) -> None:
        if self.link.greeted:
            self.link.send(message)


# --- from start to end ------------------------------------------------------------------------------------------------


def reset_self() -> None:
    """Undo what the parent left: descriptors, limits (the CLI inherits them), umask. Lead a session of our own."""
    close_from(3)
    quiet(prctl, PR_SET_DUMPABLE, 0)  # a tool of the same user must not trace the one who writes its record
    for which, wanted in SOFT_LIMITS:
        hard = resource.getrlimit(which)[1]
        soft = hard if wanted == UNLIMITED else wanted if hard == UNLIMITED else min(hard, wanted)
        try:
            resource.setrlimit(which, (soft, 0 if wanted == 0 else hard))
        except (OSError, ValueError):
            pass
    posix.umask(0o077)
    quiet(posix.setsid)


def answer(line: dict[str, Any]) -> None:
    """The one line on stdout; the daemon may be dead already. The number 1 stays taken."""
    quiet(write_all, 1, (dumps(line) + "\n").encode())
    posix.dup2(posix.open("/dev/null", posix.O_RDWR | posix.O_CLOEXEC), 1)


def keep(spec: dict[str, Any], run: RunDir) -> None:
    """One run from its mark to its record. Whatever goes wrong inside, the tree is killed and a record is tried."""
    keeper = Keeper(spec, run)
    try:
        keeper.prepare()
    except OSError as error:
        why = posix.strerror(error.errno or errno.EIO)
        raise Refused(74, kind="storage_failed", errno=error.errno, error=f"cannot prepare the run: {why}") from None
    try:
        keeper.spawn()
        answer(keeper.settle())
        keeper.loop()
    except SpawnFailed as failure:
        record_failed_spawn(keeper, failure)
    except Exception as error:  # the edge of the run: a bug of ours must still leave a record
        record_fault(keeper, error)
    quiet(lambda: posix.unlink("ctl.sock", dir_fd=run.fd))


def record_failed_spawn(keeper: Keeper, failure: SpawnFailed) -> None:
    keeper.reason, keeper.spawn_failed = "spawn_failed", failure.record
    keeper.exited = time.monotonic()
    quiet(keeper.close_record)
    record = failure.record
    answer({"error": record["message"], "kind": "spawn_failed", "errno": record["errno"], "stage": record["stage"]})


def record_fault(keeper: Keeper, error: Exception) -> None:
    """A bug of ours, or a resource that ran out: say where, never values."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = trace.tb_lineno if trace else 0
    keeper.reason, keeper.fault = "keeper_fault", f"{type(error).__name__} in line {where}"
    keeper.exited = time.monotonic()
    keeper.kill_tree()
    if keeper.record is None:
        quiet(keeper.close_record)
    answer({"error": f"cannot go on: {keeper.fault}", "kind": "keeper_fault"})  # goes nowhere once `ready` was said


def main() -> int:
    reset_self()
    try:
        spec = read_spec()
        posix.dup2(posix.open("/dev/null", posix.O_RDWR | posix.O_CLOEXEC), 0)
        run = RunDir(spec["run_dir"])
        run.lock()
        keep(spec, run)
    except Refused as refusal:
        answer(refusal.answer)
        return refusal.status
    return 0


# --- the zygote -------------------------------------------------------------------------------------------------------


def be_zygote() -> bool:
    """Fork a keeper for each packet on stdin, until its other end is closed. True in each keeper, False at the end.

    A packet carries the keeper's stdin and stdout; the answer is its pid, or minus the errno of a fork that failed. The
    first packet of ours says that we are up. No spec is ever read here: nothing that a keeper is told can be in another.
    """
    prctl(PR_SET_DUMPABLE, 0)  # who traces us would read the specs of all keepers to come
    _signal.signal(_signal.SIGCHLD, _signal.SIG_IGN)  # the kernel reaps them
    link, title = _socket.socket(fileno=0), last_word()
    gc.collect()
    gc.freeze()  # a keeper's search for garbage then writes to no page that it shares with us
    try:
        link.send(b"up")
        while fds := passed(link):
            try:
                pid = posix.fork()
            except OSError as error:
                pid = -(error.errno or errno.EAGAIN)
            if pid == 0:
                link.detach()
                be_newborn(fds, title)
                return True
            for fd in fds:
                posix.close(fd)
            link.send(b"%d" % pid)
    except OSError:
        pass  # nobody is left to answer to
    return False


def passed(link: _socket.socket) -> list[int]:
    """The descriptors of the next packet; none at its end, and none for a packet that is not one of ours."""
    _, ancillary, _, _ = link.recvmsg(1, _socket.CMSG_SPACE(8), _socket.MSG_CMSG_CLOEXEC)
    data = ancillary[0][2] if ancillary else b""
    return [int.from_bytes(data[at : at + 4], sys.byteorder) for at in (0, 4)] if len(data) == 8 else []


def last_word() -> int:
    """Where the last word of our command line lies in memory, if it is the zygote's (proc(5): field 49 ends it); else 0."""
    line, place = slurp("/proc/self/cmdline"), slurp("/proc/self/stat").rpartition(b")")[2].split()[46]
    return int(place) - len(ZYGOTE) - 1 if line.endswith(b"\0" + ZYGOTE + b"\0") and int(place) else 0


def be_newborn(fds: list[int], title: int) -> None:
    """In the child: be as a keeper that python has just started. `reset_self` does the rest."""
    for number, fd in enumerate(fds):
        posix.dup2(fd, number)
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
    if title:  # whoever looks for the zygote in `ps` must not find every keeper
        _memmove(_Long(title), KEEPER, _Long(len(KEEPER)))


if __name__ == "__main__":
    zygote = sys.argv[1:] == [ZYGOTE.decode()]
    posix._exit(main() if not zygote or be_zygote() else 0)
