"""Media blocks → what goes inline into a request: a MIME type and base64 text, or an address.

A file that this turn names must be there; one that only the history names may be gone by now, and is then told in words, so that a session stays usable.
"""

from __future__ import annotations

import base64
import mimetypes
from pathlib import Path
from typing import NamedTuple

from openprogram.context.messages import Block
from openprogram.errors import LLMError, Reason
from openprogram.providers.base import Profile

KINDS = ("image", "audio", "video")
_DEFAULT_TYPES = {"image": "image/png", "audio": "audio/wav", "video": "video/mp4"}


class Media(NamedTuple):
    """``data`` is base64 text; ``url`` an address that the provider fetches. One of them is empty."""

    kind: str
    mime_type: str
    data: str = ""
    url: str = ""

    @property
    def uri(self) -> str:
        """The address, or the data as a URI."""
        return self.url or f"data:{self.mime_type};base64,{self.data}"


def media_of(block: Block, model: str, profile: Profile) -> Media:
    """A media block, read. Raises LLMError for one that the model cannot take or that holds nothing, OSError for a file that cannot be read."""
    kind = str(block.get("type"))
    if kind not in KINDS or not getattr(profile, {"image": "images"}.get(kind, kind)):
        raise LLMError(f"the model {model!r} takes no {kind} input; send text, or choose a model that does", reason=Reason.BAD_REQUEST, model=model)
    data, path, url = block.get("data"), block.get("path"), block.get("url")
    guessed = mimetypes.guess_type(str(path or url))[0] if path or url else None
    mime_type = str(block.get("mime_type") or guessed or _DEFAULT_TYPES[kind])
    if url:
        return Media(kind, mime_type, url=str(url))
    if data is None and path is not None:
        data = Path(path).read_bytes()
    if data is None:
        raise LLMError(f"the {kind} block needs data (base64 or bytes), path or url", reason=Reason.BAD_REQUEST)
    text = base64.b64encode(data).decode("ascii") if isinstance(data, (bytes, bytearray)) else str(data)
    if text.startswith("data:"):
        head, _, text = text.partition(",")
        mime_type = str(block.get("mime_type") or head[5:].partition(";")[0] or mime_type)
    return Media(kind, mime_type, data=text)


def gone(block: Block) -> str | None:
    """What to say in place of a block whose file is no longer there; None if nothing is missing."""
    path = block.get("path")
    if block.get("type") not in KINDS or path is None or block.get("data") is not None or block.get("url") or Path(path).is_file():
        return None
    return f"[{block['type']} {Path(path).name}: the file is no longer there]"
