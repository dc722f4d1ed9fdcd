"""The editor's side of a session: pygls answers, we own the connection.

pygls is imported, made and warmed in a thread, since that takes a third of a second; until it is there, this session's messages wait in order. What pygls
must not do is done before it: ids, life cycle, unknown methods. ``exit`` never reaches it, since it would end the process.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, cast

import msgspec
from openprogram_protocol import rpc
from openprogram_protocol.errors import ErrorCode, WireError

from openprogram_daemon.errors import to_wire
from openprogram_daemon.features.code_lens import COMMAND, Lens, lenses
from openprogram_daemon.versions import other_protocol, version

if TYPE_CHECKING:
    from lsprotocol.types import CodeLens, CodeLensParams
    from pygls.lsp.server import LanguageServer

    from openprogram_daemon.core import Core

Put = Callable[[bytes], None]
Refuse = Callable[[rpc.Id, WireError], None]

_OURS = "op:"
_decode = msgspec.json.Decoder(dict[str, Any]).decode
_numbers = itertools.count(1)
_building = threading.Lock()
_converter: Any = None


class LanguageSide:
    """Takes this session's LSP messages in order; every request that it takes is answered once."""

    def __init__(self, put: Put, refuse: Refuse, core: Core) -> None:
        self._put = put
        self._refuse = refuse
        self._core = core
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._waiting: set[rpc.Id] = set()
        self._early: list[tuple[rpc.Id | msgspec.UnsetType, str, bytes]] | None = []
        self._server: Any = None
        self._failure: WireError | None = None
        self._initialized = False
        self._shut = False
        self._closed = False
        self._making = asyncio.ensure_future(self._make())

    def waits(self, request_id: rpc.Id) -> bool:
        """Whether a request of that id has not been answered yet."""
        return request_id in self._waiting

    def request(self, request_id: rpc.Id, method: str, body: bytes) -> None:
        """Take a request."""
        self._waiting.add(request_id)
        self._take(request_id, method, body)

    def notify(self, method: str, body: bytes) -> None:
        """Take a notification."""
        self._take(msgspec.UNSET, method, body)

    def answered(self, request_id: rpc.Id, body: bytes) -> None:
        """Take the reply to a request of ours; one that answers nothing is dropped."""
        if self._server is not None and self._server.protocol.asked(request_id):
            self._feed(msgspec.UNSET, body)

    def close(self) -> None:
        """The session is over: nothing is sent any more."""
        self._closed = True
        self._making.cancel()
        if self._server is not None:
            self._server.protocol.abandon()

    async def _make(self) -> None:
        try:
            self._server = await asyncio.to_thread(language_server, self._send)
        except Exception as error:
            logging.getLogger("openprogram.daemon").exception("the language server could not be made")
            self._failure = to_wire(error)
        early, self._early = self._early or [], None
        for request_id, method, body in early:
            self._take(request_id, method, body)

    def _take(self, request_id: rpc.Id | msgspec.UnsetType, method: str, body: bytes) -> None:
        if self._early is not None:
            self._early.append((request_id, method, body))
            return
        problem = self._problem(method)
        if problem is None:
            self._feed(request_id, body)
            self._shut = self._shut or method == "shutdown"
        elif not isinstance(request_id, msgspec.UnsetType):
            self._no(request_id, problem)

    def _problem(self, method: str) -> WireError | None:
        if self._failure is not None:
            return self._failure
        if self._shut:
            return WireError(code=ErrorCode.INVALID_REQUEST, message=f"{method} came after shutdown")
        if method == "initialize":
            if self._initialized:
                return WireError(code=ErrorCode.INVALID_REQUEST, message="this connection is initialized already")
            self._initialized = True
            return None
        if not self._initialized:
            return WireError(code=ErrorCode.NOT_CONNECTED, message=f"{method} came before initialize")
        if not self._server.protocol.knows(method):
            return WireError(code=ErrorCode.METHOD_NOT_FOUND, message=f"there is no method {method}")
        return None

    def _feed(self, request_id: rpc.Id | msgspec.UnsetType, body: bytes) -> None:
        protocol = self._server.protocol
        try:
            protocol.handle_message(protocol.structure_message({**_decode(body), "jsonrpc": "2.0"}))
        except Exception as error:
            if not isinstance(request_id, msgspec.UnsetType):
                where = _where(error.__cause__).removeprefix(".params")
                self._no(request_id, WireError(code=ErrorCode.INVALID_PARAMS, message=f"the params do not fit - at `${where}`"))

    def _no(self, request_id: rpc.Id, error: WireError) -> None:
        if request_id in self._waiting:
            self._waiting.discard(request_id)
            self._refuse(request_id, error)

    def _send(self, message: dict[str, Any]) -> None:
        """A message of pygls, from any thread."""
        if threading.get_ident() == self._thread:
            self._sent(message)
        else:
            self._loop.call_soon_threadsafe(self._sent, message)

    def _sent(self, message: dict[str, Any]) -> None:
        if self._closed:
            return
        if "method" not in message:
            if message.get("id") not in self._waiting:
                return
            self._waiting.discard(message.get("id"))
            _announce(message, self._core)
        self._put(msgspec.json.encode(message))


def _announce(message: dict[str, Any], core: Core) -> None:
    """Say in the reply to ``initialize`` what this daemon is."""
    result = message.get("result")
    if isinstance(result, dict) and "capabilities" in result and "serverInfo" in result:
        about = {"protocol": rpc.PROTOCOL, "version": version(), "epoch": core.epoch}
        cast("dict[str, Any]", result)["capabilities"]["experimental"] = {"openprogram": about}


class _Options(msgspec.Struct):
    protocol: int = rpc.PROTOCOL


class _Initialize(msgspec.Struct, rename="camel"):
    process_id: int | None = None
    initialization_options: _Options | None = None
    client_info: dict[str, str] | None = None


_decode_initialize = msgspec.json.Decoder(_Initialize).decode


def introduced(params: bytes, core: Core) -> dict[str, Any]:
    """What an editor says of itself in ``initialize``. Raises RefusedError for another protocol; pygls judges what does not fit otherwise."""
    try:
        found = _decode_initialize(params or b"{}")
    except msgspec.ValidationError:
        return {}
    if found.initialization_options is not None and found.initialization_options.protocol != rpc.PROTOCOL:
        raise other_protocol(found.initialization_options.protocol, core)
    return {"role": "editor", "client": (found.client_info or {}).get("name", ""), "pid": found.process_id or 0}


def _where(error: BaseException | None) -> str:
    """The JSON path that the converter's error is about, from the notes that it leaves."""
    for inner in cast("tuple[BaseException, ...]", getattr(error, "exceptions", ())):
        for note in cast("list[Any]", getattr(inner, "__notes__", [])):
            name, index = getattr(note, "name", None), getattr(note, "index", None)
            if isinstance(name, str):
                return f".{_camel(name)}{_where(inner)}"
            if index is not None:
                return f"[{index}]{_where(inner)}"
        return _where(inner)
    return ""


def _camel(name: str) -> str:
    return re.sub(r"_([a-z])", lambda found: found.group(1).upper(), name)


def warm() -> None:
    """Import and prepare all that the first editor would otherwise wait for; for a thread."""
    language_server(lambda _: None)


def language_server(send: Callable[[dict[str, Any]], None]) -> Any:
    """A language server whose messages go to ``send``; the converter is prepared once and shared."""
    global _converter
    with _building:
        # It logs whole messages.
        logging.getLogger("pygls").setLevel(logging.CRITICAL + 1)
        from pygls.protocol import default_converter

        is_first = _converter is None
        _converter = _converter or default_converter()
        server = _server(send)
        if is_first:
            hello: dict[str, Any] = {"capabilities": {}, "processId": None, "rootUri": None}
            server.protocol.structure_message({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})
        return server


def _server(send: Callable[[dict[str, Any]], None]) -> Any:
    from lsprotocol import types
    from pygls.lsp.server import LanguageServer
    from pygls.protocol import LanguageServerProtocol

    class Protocol(LanguageServerProtocol):
        def _send_data(self, data: Any) -> None:
            if data:
                send(self._converter.unstructure(data) if hasattr(data, "__attrs_attrs__") else data)

        def send_request(self, method: str, params: Any = None, callback: Any = None, msg_id: Any = None) -> Future[Any]:
            return super().send_request(method, params, callback, msg_id or f"{_OURS}{next(_numbers)}")

        def asked(self, request_id: Any) -> bool:
            """Whether a request of ours of that id waits for its reply."""
            return isinstance(request_id, str) and request_id.startswith(_OURS) and request_id in self._request_futures

        def knows(self, method: str) -> bool:
            """Whether there is a handler."""
            manager: Any = self.fm
            return method in manager.builtin_features or method in manager.features or method == "$/cancelRequest"

        def abandon(self) -> None:
            """Let go of what is being worked on."""
            for future in list(self._request_futures.values()):
                future.cancel()

    server = LanguageServer("openprogram", version(), protocol_cls=Protocol, converter_factory=lambda: _converter)

    server.feature(types.TEXT_DOCUMENT_CODE_LENS)(_code_lens)
    return server


async def _code_lens(ls: LanguageServer, params: CodeLensParams) -> list[CodeLens]:
    from lsprotocol import types
    from pygls.uris import to_fs_path

    uri = params.text_document.uri
    document = ls.workspace.get_text_document(uri)

    def work() -> list[Lens]:
        try:
            return lenses(document.source, uri, to_fs_path(uri) or document.path)
        except (OSError, UnicodeError):  # it is not open, and gone or no text
            return []

    found = await asyncio.to_thread(work)
    lines = [types.Range(types.Position(lens.line, 0), types.Position(lens.line, 0)) for lens in found]
    commands = [types.Command(title=lens.title, command=COMMAND, arguments=lens.arguments) for lens in found]
    return [types.CodeLens(place, command) for place, command in zip(lines, commands, strict=True)]
