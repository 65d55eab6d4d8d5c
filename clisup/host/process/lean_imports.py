"""The daemon's packages without what they take along for others: 9 MB and a tenth of a start's processor time.

The daemon speaks over a Unix socket and logs plain text. structlog takes asyncio along, and rich where it finds it; trio takes TLS;
pydantic takes what reads installed packages; and hashes take OpenSSL, though Python has its own. Who asks for one of these later, a
plug-in or the tracer, has it: nothing is taken away, and nothing of these packages is changed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

__all__ = ["import_lean"]

_NOT_FOUND = ("rich", "better_exceptions")  # structlog's, for tracebacks in colours; the daemon's are plain
_OPENSSL = "_hashlib"
_PUT_OFF: dict[str, tuple[str, ...]] = {
    # module -> the functions that are taken from it by name
    "asyncio": (),  # structlog's, for `await log.ainfo()`
    "ssl": (),  # trio's, for SSLStream
    "importlib.metadata": ("entry_points",),  # pydantic's, for its plug-ins, which the daemon has switched off
}
_SHA2 = ("_sha2",) if sys.version_info >= (3, 12) else ("_sha256", "_sha512")
_HASHES = ("_md5", "_sha1", *_SHA2, "_sha3", "_blake2")


def import_lean() -> None:
    """Import them, before anybody else does. What is in the process already stays as it is."""
    stand_ins: dict[str, ModuleType | None] = dict.fromkeys(_NOT_FOUND)  # None tells the import system: there is none
    if all(find_spec(name) is not None for name in _HASHES):  # some distributions leave these to OpenSSL alone
        stand_ins[_OPENSSL] = None
    stand_ins |= {name: _put_off(name, functions) for name, functions in _PUT_OFF.items()}
    stand_ins = {name: module for name, module in stand_ins.items() if name not in sys.modules}
    sys.modules.update(stand_ins)  # type: ignore[arg-type]  # typeshed knows no None there
    try:
        for name in ("structlog", "trio", "hashlib", "hmac", "pydantic"):
            import_module(name)
        from pydantic import TypeAdapter

        TypeAdapter(int)  # plug-ins are looked for with the first validator
    finally:
        for name, module in stand_ins.items():
            _leave(name, module)


def _leave(name: str, stand_in: ModuleType | None) -> None:
    """Whoever imports it from now on has the real one."""
    if name in sys.modules and sys.modules[name] is stand_in:
        del sys.modules[name]


def _put_off(name: str, functions: tuple[str, ...]) -> ModuleType:
    """Stands for a module, and loads it when anything of it is asked for, or one of its `functions` is called."""

    class PutOff(ModuleType):
        def __getattr__(self, attribute: str) -> Any:
            if attribute.startswith("__"):  # the import system's own questions
                raise AttributeError(attribute)
            _leave(name, self)  # it may be asked for while it still stands there
            return getattr(import_module(name), attribute)

    module = PutOff(name)
    for function in functions:
        setattr(module, function, _called_later(module, function))
    return module


def _called_later(module: ModuleType, function: str) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return module.__getattr__(function)(*args, **kwargs)

    return call
