"""Imports of the daemon's packages without their unneeded dependencies: saves 9 MB and a tenth of a start's CPU time.

The daemon uses a Unix socket and logs plain text. structlog imports asyncio, and rich if it is installed; trio imports
TLS. pydantic imports code that reads installed packages. hashlib imports OpenSSL, though Python has its own hashes. A
plug-in or the tracer can still import each of these later: nothing is removed, and no package is changed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

__all__ = ["import_lean"]

_NOT_FOUND = ("rich", "better_exceptions")  # of structlog, for coloured tracebacks; the daemon's are plain
_OPENSSL = "_hashlib"
_PUT_OFF: dict[str, tuple[str, ...]] = {
    # module -> the functions that are imported from it by name
    "asyncio": (),  # of structlog, for `await log.ainfo()`
    "ssl": (),  # of trio, for SSLStream
    "importlib.metadata": ("entry_points",),  # of pydantic, for plug-ins, which the daemon has switched off
}
_SHA2 = ("_sha2",) if sys.version_info >= (3, 12) else ("_sha256", "_sha512")
_HASHES = ("_md5", "_sha1", *_SHA2, "_sha3", "_blake2")


def import_lean() -> None:
    """Import the packages before any other code does. Modules that are already loaded stay as they are."""
    stand_ins: dict[str, ModuleType | None] = dict.fromkeys(_NOT_FOUND)  # None means: no such module
    if all(find_spec(name) is not None for name in _HASHES):  # some distributions leave these hashes to OpenSSL alone
        stand_ins[_OPENSSL] = None
    stand_ins |= {name: _put_off(name, functions) for name, functions in _PUT_OFF.items()}
    stand_ins = {name: module for name, module in stand_ins.items() if name not in sys.modules}
    sys.modules.update(stand_ins)  # type: ignore[arg-type]  # typeshed does not know None there
    try:
        for name in ("structlog", "trio", "hashlib", "hmac", "pydantic"):
            import_module(name)
        from pydantic import TypeAdapter

        TypeAdapter(int)  # the first validator triggers the search for plug-ins
    finally:
        for name, module in stand_ins.items():
            _leave(name, module)


def _leave(name: str, stand_in: ModuleType | None) -> None:
    """Remove a stand-in, so that later imports get the real module."""
    if name in sys.modules and sys.modules[name] is stand_in:
        del sys.modules[name]


def _put_off(name: str, functions: tuple[str, ...]) -> ModuleType:
    """Return a stand-in for a module.

    It loads the module on the first access to an attribute or call of `functions`.
    """

    class PutOff(ModuleType):
        def __getattr__(self, attribute: str) -> Any:
            if attribute.startswith("__"):  # a question of the import system
                raise AttributeError(attribute)
            _leave(name, self)  # the stand-in may be used while it is still in `sys.modules`
            return getattr(import_module(name), attribute)

    module = PutOff(name)
    for function in functions:
        setattr(module, function, _called_later(module, function))
    return module


def _called_later(module: ModuleType, function: str) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return module.__getattr__(function)(*args, **kwargs)

    return call
