"""Content of a prompt besides text: images, in the order in which the model sees them. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from clisup.model.structs import JsonObject

MediaType = Literal["image/png", "image/jpeg", "image/gif", "image/webp"]
MEDIA_TYPES: tuple[MediaType, ...] = get_args(MediaType)
_MAGIC: tuple[tuple[bytes, MediaType], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
_SUFFIXES: dict[str, str] = {
    "image/png": "png",
    "image/jpeg": "jpg",
    "image/gif": "gif",
    "image/webp": "webp",
}


@dataclass(frozen=True, slots=True)
class Image:
    """Image: its media type and its bytes in base64, as `image_of` has checked them."""

    media_type: str
    data: str

    @property
    def raw(self) -> bytes:
        """Return the file's bytes."""
        return base64.b64decode(self.data)

    @property
    def url(self) -> str:
        """Return the image as a `data:` URL."""
        return f"data:{self.media_type};base64,{self.data}"

    def file_name(self, number: int) -> str:
        """Return the name of the image's file: `image-1.png`."""
        return f"image-{number}.{_SUFFIXES.get(self.media_type, 'bin')}"


Content = tuple[str | Image, ...]
"""Texts and images of a prompt, in order. Empty for a prompt of one text only."""


def media_type_of(data: bytes) -> MediaType | None:
    """Return the media type by the first bytes, or None for data that is no image of a kind that backends take."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in _MAGIC if data.startswith(magic)), None)


def image_of(media_type: str, data: str) -> tuple[Image, int]:
    """Return a checked image and the size of its file. Raises `ValueError` with the reason, without the data."""
    try:
        raw = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("data is no base64 (RFC 4648, padded, without line breaks)") from None
    if not raw:
        raise ValueError("data is empty")
    found = media_type_of(raw)
    if found is None:
        raise ValueError(f"data is no image: its first bytes are not those of any of {', '.join(MEDIA_TYPES)}")
    if found != media_type:
        raise ValueError(f"media_type is {media_type}, but data is {found}")
    return Image(media_type, data), len(raw)


def text_of(content: Iterable[str | Image]) -> str:
    """Return the texts alone, joined."""
    return "\n".join(part for part in content if isinstance(part, str))


def stored(content: Content, cached: Collection[int] = ()) -> list[JsonObject]:
    """Return the content as JSON, for the prompt's file.

    `cached` are the parts that end a section for the API's cache.
    """
    blocks: list[JsonObject] = [
        {"type": "text", "text": part}
        if isinstance(part, str)
        else {"type": "image", "media_type": part.media_type, "data": part.data}
        for part in content
    ]
    for index in cached:
        blocks[index]["cache"] = True
    return blocks


def cached_parts(blocks: Sequence[Mapping[str, Any]] | None) -> tuple[int, ...]:
    """Return the indexes in `content_of` of the parts that end a section for the API's cache."""
    kept = [block for block in blocks or () if block["type"] == "image" or str(block["text"]).strip()]
    return tuple(index for index, block in enumerate(kept) if block.get("cache"))


def content_of(blocks: Sequence[Mapping[str, Any]] | None) -> Content:
    """Return the content that `stored` has written.

    Blank texts are left out: a model's API refuses them beside an image.
    """
    parts = (
        Image(str(block["media_type"]), str(block["data"])) if block["type"] == "image" else str(block["text"])
        for block in blocks or ()
    )
    return tuple(part for part in parts if isinstance(part, Image) or part.strip())
