"""The editor's side of a session, on the socket."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from openprogram_protocol.rpc import PROTOCOL

from tests.daemon.support import Daemon, Raw, until

Connect = Callable[..., Raw]

HELLO = {"processId": os.getpid(), "rootUri": None, "capabilities": {}, "clientInfo": {"name": "test-editor"}}


@pytest.fixture
def editor(daemon: Daemon, raw: Connect) -> Raw:
    """A connection that is initialized."""
    opened = raw()
    opened.call("initialize", HELLO)
    opened.notify("initialized", {})
    return opened


def lens_params(path: Path) -> dict[str, Any]:
    return {"textDocument": {"uri": path.as_uri()}}


def test_initialize_opens_the_connection_for_both_sides(daemon: Daemon, raw: Connect) -> None:
    """The reply names what is offered and, in ``experimental``, this daemon; after it requests of ours are answered too."""
    editor = raw()
    capabilities = editor.call("initialize", HELLO)["capabilities"]
    assert capabilities["codeLensProvider"]
    assert capabilities["positionEncoding"] == "utf-16"
    about = capabilities["experimental"]["openprogram"]
    status = editor.call("openprogram/status")
    assert (about["protocol"], about["epoch"], status["pid"]) == (PROTOCOL, status["epoch"], daemon.pid)
    assert [(one["role"], one["client"]) for one in status["clients"]] == [("editor", "test-editor")]


def test_ours_is_answered_while_the_language_server_is_made(daemon: Daemon, raw: Connect) -> None:
    """The first ``initialize`` of a daemon takes a while: other requests, of this connection and others, do not wait for it, and those to the editor's side
    are answered in order after it.
    """
    editor = raw()
    first = editor.request("initialize", HELLO)
    lens = editor.request("textDocument/codeLens", lens_params(Path("/nowhere/x.py")))
    status = editor.request("openprogram/status")
    raw().connect().call("openprogram/status")
    assert [editor.get()["id"] for _ in range(3)] == [status, first, lens]


def test_a_lens_above_every_function(editor: Raw, workspace: Path) -> None:
    """Functions of a file on the disk, found without importing it, whatever the name of the file."""
    file = workspace / "é b#c%20.py"
    functions = "@af\ndef first(): ...\n\n\n@af(name='other')\nasync def second(): ...\n"
    file.write_text(f"raise SystemExit\nx = '😀'\nfrom openprogram import agentic_function as af\n\n\n{functions}")
    found = editor.call("textDocument/codeLens", lens_params(file))
    assert [lens["range"]["start"]["line"] for lens in found] == [5, 9]
    assert [lens["command"]["arguments"][0]["function"] for lens in found] == [f"{file}:first", f"{file}:second"]
    assert "other" in found[1]["command"]["title"]


def test_the_editors_buffer_counts(editor: Raw, workspace: Path) -> None:
    """What the editor holds is shown, saved or not, changed or broken."""
    file = workspace / "work.py"
    uri = file.as_uri()
    text = "from openprogram import agentic_function\n\n@agentic_function\ndef unsaved(): ...\n"
    editor.notify("textDocument/didOpen", {"textDocument": {"uri": uri, "languageId": "python", "version": 1, "text": text}})
    assert len(editor.call("textDocument/codeLens", lens_params(file))) == 1
    change = {"range": {"start": {"line": 2, "character": 0}, "end": {"line": 2, "character": 17}}, "text": "# 😀"}
    editor.notify("textDocument/didChange", {"textDocument": {"uri": uri, "version": 2}, "contentChanges": [change]})
    assert editor.call("textDocument/codeLens", lens_params(file)) == []
    editor.notify("textDocument/didChange", {"textDocument": {"uri": uri, "version": 3}, "contentChanges": [{"text": "def ("}]})
    assert editor.call("textDocument/codeLens", lens_params(file)) == []
    editor.notify("textDocument/didClose", {"textDocument": {"uri": uri}})
    assert len(editor.call("textDocument/codeLens", lens_params(file))) > 3


@pytest.mark.parametrize(
    ("method", "params", "code", "words"),
    [
        ("textDocument/codeLens", {"textDocument": 5}, -32602, "$.textDocument"),
        ("textDocument/codeLens", {}, -32602, "$.textDocument"),
        ("textDocument/hover", {}, -32601, "textDocument/hover"),
        ("nothing", {}, -32601, "nothing"),
        ("initialize", HELLO, -32600, "initialized already"),
    ],
)
def test_requests_that_cannot_be_answered(editor: Raw, method: str, params: Any, code: int, words: str) -> None:
    """Each gets the error of its kind, and the connection goes on."""
    error = editor.error(method, params)
    assert error["code"] == code
    assert words in error["message"]
    assert editor.call("openprogram/status")["pid"]


def test_before_initialize_the_editors_side_is_closed(client: Raw) -> None:
    """A script's connection does not become an editor's by asking."""
    assert client.error("textDocument/codeLens", lens_params(Path("/x.py")))["code"] == -32002


def test_an_editor_of_another_protocol_is_refused(daemon: Daemon, raw: Connect) -> None:
    """What it says in its options is checked as ``connect`` checks it."""
    editor = raw()
    assert editor.error("initialize", {**HELLO, "initializationOptions": {"protocol": 99}})["code"] == -32063
    assert editor.error("openprogram/status")["code"] == -32002


def test_p03_shutdown_and_exit_end_one_session(daemon: Daemon, raw: Connect, editor: Raw) -> None:
    """p03: after ``shutdown`` every request of the editor's side is refused; ``exit`` ends this connection, and nothing else."""
    other = raw().connect()
    assert editor.call("shutdown") is None
    assert editor.error("textDocument/codeLens", lens_params(Path("/x.py")))["code"] == -32600
    assert editor.error("shutdown")["code"] == -32600
    editor.notify("exit")
    with pytest.raises((EOFError, ConnectionError)):
        editor.get()
    until(lambda: len(other.call("openprogram/status")["clients"]) == 1)
    assert daemon.process.poll() is None
    again = raw()
    assert again.call("initialize", HELLO)["capabilities"]["codeLensProvider"]


@pytest.mark.parametrize("message", ["exit", "initialize"])
def test_p02_an_editor_that_goes_at_once(daemon: Daemon, raw: Connect, message: str) -> None:
    """p02: ``exit`` as the first message, or a window closed before ``initialize`` returned, leaves the daemon as it was."""
    gone = raw()
    gone.request("initialize", HELLO) if message == "initialize" else gone.notify("exit")
    gone.close()
    other = raw().connect()
    until(lambda: len(other.call("openprogram/status")["clients"]) == 1)
    assert raw().call("initialize", HELLO)["capabilities"]


def test_cancel_is_answered_once(editor: Raw, workspace: Path) -> None:
    """A request that is cancelled gets one reply, the result or the error of a cancelled one, and the next ones theirs."""
    replies: list[dict[str, Any]] = []
    for _ in range(50):
        request_id = editor.request("textDocument/codeLens", lens_params(workspace / "work.py"))
        editor.notify("$/cancelRequest", {"id": request_id})
        replies.append(editor.reply(request_id))
    assert {reply["error"]["code"] for reply in replies if "error" in reply} == {-32800}
    editor.call("openprogram/status")
    assert editor.others == []


def test_what_pygls_asks_is_answered_by_its_own_ids_only() -> None:
    """A request of ours has an id that no client uses; a reply with that id resolves it, any other is dropped."""
    asyncio.run(_asked())


async def _asked() -> None:
    from lsprotocol import types
    from openprogram_daemon.lsp import language_server

    sent: list[dict[str, Any]] = []
    server = language_server(sent.append)
    protocol = server.protocol
    params = types.ShowMessageRequestParams(types.MessageType.Info, "?", [types.MessageActionItem("A")])
    answer = protocol.send_request_async("window/showMessageRequest", params)
    (request,) = sent
    assert request["id"].startswith("op:")
    assert protocol.asked(request["id"])
    assert not protocol.asked("op:0")
    assert not protocol.asked(1)
    protocol.handle_message(protocol.structure_message({"jsonrpc": "2.0", "id": request["id"], "result": {"title": "A"}}))
    assert (await answer).title == "A"
    assert not protocol.asked(request["id"])
