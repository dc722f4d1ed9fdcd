"""Bytes to text to a syntax tree, without ever raising: whatever is wrong with a file becomes one `SourceError` with its line."""

from __future__ import annotations

import ast
import codecs
import io
import re
import tokenize
import warnings

from openprogram_protocol.functions import SourceError

MAX_BYTES = 10 * 1024 * 1024
_NEWLINE = re.compile(r"\r\n|\r|\n")


class Source:
    """A file that parsed: its tree and its text by position."""

    def __init__(self, text: str, tree: ast.Module) -> None:
        self.tree = tree
        self._lines = _NEWLINE.split(text)

    def text_of(self, node: ast.expr) -> str:
        """The source text of an expression on one line. Splitting the text once, here, keeps a file of many functions linear."""
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        lines = [line.encode("utf-8", "surrogatepass") for line in self._lines[first : last + 1]]
        lines[-1] = lines[-1][: node.end_col_offset]
        lines[0] = lines[0][node.col_offset :]
        return " ".join(line.decode("utf-8", "replace").strip() for line in lines)


def parse(data: bytes | str, file: str) -> Source | SourceError:
    """Read a module. ``data`` is the content of a file (its encoding is found as Python finds it) or the text of an editor's buffer."""
    text = data if isinstance(data, str) else _decode(data, file)
    if isinstance(text, SourceError):
        return text
    if "\0" in text:
        return SourceError(file=file, line=_line_at(text, text.index("\0")), message="the file holds a null byte; it is no text file, or is saved as UTF-16")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an invalid escape in somebody's file is not ours to report
            return Source(text, ast.parse(text.removeprefix("\ufeff"), filename=file))
    except SyntaxError as error:
        return SourceError(file=file, line=max(error.lineno or 1, 1), message=str(error.msg))
    except (RecursionError, MemoryError):
        return SourceError(file=file, line=1, message="the code is nested too deeply to parse")
    except (ValueError, OverflowError) as error:
        return SourceError(file=file, line=1, message=str(error))


def _decode(data: bytes, file: str) -> str | SourceError:
    if len(data) > MAX_BYTES:
        return SourceError(file=file, line=1, message=f"the file is larger than {MAX_BYTES // 1024 // 1024} MiB and was not read")
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return SourceError(file=file, line=1, message="the file is saved as UTF-16; save it as UTF-8")
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    except SyntaxError as error:
        return SourceError(file=file, line=_undecodable_line(data, "utf-8"), message=_encoding_message(data, error))
    try:
        return data.decode(encoding)
    except UnicodeError:
        message = f"the file is not valid {encoding}; save it as UTF-8 or declare its encoding in the first line"
        return SourceError(file=file, line=_undecodable_line(data, encoding), message=message)
    except (LookupError, ValueError):
        return SourceError(file=file, line=1, message=f"{encoding} is no text encoding")


def _encoding_message(data: bytes, error: SyntaxError) -> str:
    if "unknown encoding" in str(error.msg) or "encoding problem" in str(error.msg):
        return str(error.msg)
    return "the file is not valid utf-8; save it as UTF-8 or declare its encoding in the first line"


def _undecodable_line(data: bytes, encoding: str) -> int:
    try:
        data.decode(encoding)
    except UnicodeDecodeError as error:
        before = data[: error.start]
        return len(re.findall(rb"\r\n|\r|\n", before)) + 1
    except (UnicodeError, LookupError):
        pass
    return 1


def _line_at(text: str, index: int) -> int:
    return len(_NEWLINE.findall(text, 0, index)) + 1
