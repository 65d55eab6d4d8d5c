"""Settings of a repository that git may use: an allow-list. Pure.

A model's tool can write the repository's own configuration, and many settings there name a program: filters, hooks,
signers, editors, transports. git gets a copy with the settings below alone. The user's own configuration
(`~/.gitconfig`, `/etc/gitconfig`) is read by git as always, so that a filter such as git LFS works.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["Setting", "allowed_settings", "filters_of", "is_sparse", "parsed", "rendered"]

Setting = tuple[bytes, bytes | None]
"""Key, as `git config --list` prints it, and value. A key without a value means true."""

ALLOWED = re.compile(
    rb"core\.(?:repositoryformatversion|bare|filemode|symlinks|ignorecase|precomposeunicode|longpaths|protecthfs|protectntfs"
    rb"|autocrlf|eol|safecrlf|checkroundtripencoding|checkstat|trustctime|excludesfile|attributesfile|logallrefupdates"
    rb"|sharedrepository|sparsecheckout|sparsecheckoutcone|untrackedcache|splitindex|bigfilethreshold|compression|abbrev)"
    rb"|extensions\.(?!worktreeconfig$|partialclone$|relativeworktrees$).*"  # git refuses an extension that it does not know
    rb"|(?:user|author|committer)\.(?:name|email)|user\.useconfigonly|i18n\.commitencoding"
    rb"|index\.(?:version|threads|sparse|skiphash)|feature\.manyfiles|checkout\.workers"
    rb"|branch\..*\.(?:remote|merge)|remote\..*\.(?:url|pushurl|fetch)"  # git LFS reads them
    rb"|lfs\.(?:url|repositoryformatversion|fetchinclude|fetchexclude)|lfs\..*\.(?:access|locksverify)",
    re.DOTALL,
)
"""Settings that name no program, no protocol and no further file of settings."""

_FILTER = re.compile(rb"filter\.(.*)\.(?:clean|smudge|process)", re.DOTALL)
_SPARSE = re.compile(rb"core\.sparsecheckout(?:cone)?|index\.sparse")


def parsed(listing: bytes) -> list[Setting]:
    """Return the settings of the output of `git config --list -z`."""
    entries = (entry.partition(b"\n") for entry in listing.split(b"\0") if entry)
    return [(key, value if mark else None) for key, mark, value in entries]


def allowed_settings(settings: Iterable[Setting]) -> list[Setting]:
    """Return the settings that git may use."""
    return [setting for setting in settings if ALLOWED.fullmatch(setting[0])]


def filters_of(settings: Iterable[Setting]) -> set[bytes]:
    """Return the names of the filters that the settings define."""
    return {found[1] for key, _ in settings if (found := _FILTER.fullmatch(key))}


def is_sparse(setting: Setting) -> bool:
    """Tell whether a setting belongs to a sparse checkout, which git keeps for each working tree."""
    return _SPARSE.fullmatch(setting[0]) is not None


def rendered(settings: Iterable[Setting]) -> bytes:
    """Return a configuration file with these settings."""
    lines = []
    for key, value in settings:
        section, _, rest = key.partition(b".")
        middle, _, name = rest.rpartition(b".")
        head = section + (b' "' + _escaped(middle) + b'"' if b"." in rest else b"")
        lines.append(
            b"[" + head + b"]\n\t" + name + (b"" if value is None else b' = "' + _quoted(value) + b'"') + b"\n"
        )
    return b"".join(lines)


def _escaped(text: bytes) -> bytes:
    return text.replace(b"\\", b"\\\\").replace(b'"', b'\\"')


def _quoted(value: bytes) -> bytes:
    return _escaped(value).replace(b"\n", b"\\n").replace(b"\t", b"\\t").replace(b"\b", b"\\b")
