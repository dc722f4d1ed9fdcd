"""The wire rules, one connection at a time, against bytes that a stock implementation gets wrong."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import pytest
from openprogram_protocol.framing import MAX_BODY
from openprogram_protocol.rpc import PROTOCOL

from tests.daemon.support import Daemon, Raw

Connect = Callable[..., Raw]


def framed(body: bytes, header: bytes = b"Content-Length: %d\r\n\r\n") -> bytes:
    return header % len(body) + body


STATUS = json.dumps({"jsonrpc": "2.0", "id": 7, "method": "openprogram/status"}).encode()


@pytest.mark.parametrize(
    "header",
    [
        b"Content-Length: %d\r\n\r\n",
        b"content-length:%d\r\n\r\n",
        b"CONTENT-LENGTH:   %d\r\n\r\n",
        b"Content-Type: application/vscode-jsonrpc; charset=utf-8\r\nContent-Length: %d\r\n\r\n",
        b"Content-Length: %d\r\nX-Unknown: yes\r\n\r\n",
    ],
)
def test_headers_that_differ_in_form(client: Raw, header: bytes) -> None:
    """Case and the space after the colon do not matter, other headers are passed over."""
    client.send(framed(STATUS, header))
    assert client.reply(7)["result"]["pid"]


def test_a_message_in_single_bytes(client: Raw) -> None:
    """How the bytes are cut into packets does not matter."""
    for byte in framed(STATUS):
        client.send(bytes([byte]))
    assert client.reply(7)["result"]["pid"]


def test_p17_lengths_count_bytes(client: Raw) -> None:
    """p17: a message with text that is longer in bytes than in characters is read, and so is the one behind it."""
    title = "漢字 😀 é"
    client.put({"jsonrpc": "2.0", "id": "ä", "method": "openprogram/session/create", "params": {"id": "s", "title": title}})
    client.send(framed(STATUS))
    assert client.reply("ä")["result"]["title"] == title
    assert client.reply(7)["result"]["pid"]


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        (b"{", -32700, "no JSON"),
        (b"\xff\xfe", -32700, "no JSON"),
        (b"", -32700, "no JSON"),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "openprogram/status", "params": {"x": NaN}}', -32700, "no JSON"),
        (b"[" * 100_000, -32600, "batches"),
        (b'{"a": ' * 100_000, -32700, "no JSON"),
        (b'[{"jsonrpc": "2.0", "id": 1, "method": "openprogram/status"}]', -32600, "batches"),
        (b"3", -32600, "no message"),
        (b"{}", -32600, "method"),
        (b'{"jsonrpc": "2.0", "id": {"a": 1}, "method": "openprogram/status"}', -32600, "no message"),
        (b'{"jsonrpc": "2.0", "id": true, "method": "openprogram/status"}', -32600, "no message"),
        (b'{"jsonrpc": "2.0", "id": 1, "method": 5}', -32600, "no message"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_is_no_message_gets_an_error_and_the_connection_goes_on(client: Raw, body: bytes, code: int, words: str) -> None:
    """A body that cannot be read is answered without an id; the next one is read as if nothing had been."""
    client.send(framed(body) + framed(STATUS))
    refusal = client.get()
    assert refusal["id"] is None
    assert refusal["error"]["code"] == code
    assert words in refusal["error"]["message"]
    assert client.reply(7)["result"]["pid"]


@pytest.mark.parametrize(
    ("method", "params", "code", "words"),
    [
        ("openprogram/nothing", {}, -32601, "openprogram/nothing"),
        ("openprogram/worker/run", {}, -32601, "openprogram/worker/run"),
        ("openprogram/run", {"runId": 3}, -32602, "$.runId"),
        ("openprogram/run", {}, -32602, "runId"),
        ("openprogram/run", [1], -32602, "object"),
        ("openprogram/run", {"runId": "short", "function": "f", "workspace": "w"}, -32602, "$.runId"),
        ("openprogram/dag/append", {"node": {"id": "n", "session": "s", "role": "code", "name": "f", "frame": 1}}, -32602, "$.node.frame"),
        ("openprogram/subscribe", {"topics": ["weather"]}, -32602, "$.topics"),
        ("openprogram/result", {"runId": "0" * 32}, -32051, "0000"),
        ("openprogram/sessions", {"id": "none"}, -32041, "none"),
        ("openprogram/functions", {"workspace": "none"}, -32010, "workspace"),
    ],
)
def test_requests_that_cannot_be_answered(client: Raw, method: str, params: Any, code: int, words: str) -> None:
    """Each has the code of its kind, and the message names what is wrong and where."""
    error = client.error(method, params)
    assert error["code"] == code
    assert words in error["message"]


@pytest.mark.parametrize("params", [None, {}])
def test_params_may_be_left_out(client: Raw, params: Any) -> None:
    """A request without params, or with null, is one with the defaults."""
    assert client.call("openprogram/status", params)["pid"]
    client.put({"jsonrpc": "2.0", "id": 9, "method": "openprogram/status", "params": None})
    assert client.reply(9)["result"]["pid"]


def test_unusual_keys_arrive_unchanged(client: Raw) -> None:
    """Keys that are words of Python, hold dashes or are called ``jsonrpc`` come back as they were sent."""
    given: dict[str, Any] = {"class": 1, "a-b": {"jsonrpc": "2.0", "id": 5}, "_x": None, "type_name": [], "": "empty", "$type": "not a form"}
    frame = client.call("openprogram/session/create", {"id": "s"})["frame"]
    client.call("openprogram/dag/append", {"node": {"id": "n", "session": "s", "role": "code", "name": "f", "frame": frame, "input": given}})
    stored = client.call("openprogram/dag/node", {"id": "n"})["node"]["input"]
    assert stored == given or dict(stored["value"]) == given


@pytest.mark.parametrize("method", ["openprogram/status", "openprogram/stop", "textDocument/hover", "shutdown", "openprogram/nothing"])
def test_the_gate(daemon: Daemon, raw: Connect, method: str) -> None:
    """Before connect or initialize every request is refused, and nothing happens."""
    before = raw()
    assert before.error(method)["code"] == -32002
    assert before.connect().call("openprogram/status")["pid"] == daemon.pid


def test_p10_another_protocol_is_named(daemon: Daemon, raw: Connect) -> None:
    """p10: a client of another protocol hears both numbers and the way out, and whether the daemon is busy; the gate stays closed."""
    raw().connect()
    other = raw()
    error = other.error("openprogram/connect", {"protocol": 99})
    assert error["code"] == -32063
    assert str(PROTOCOL) in error["message"]
    assert "99" in error["message"]
    assert "daemon restart" in error["message"]
    assert (error["data"]["protocol"], error["data"]["runs"], error["data"]["clients"]) == (PROTOCOL, 0, 1)
    assert other.error("openprogram/status")["code"] == -32002


@pytest.mark.parametrize("start", [b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\x16\x03\x01\x02\x00", b"\r\n\r\n", b"{}\n"], ids=repr)
def test_other_protocols_are_closed_without_a_reply(daemon: Daemon, raw: Connect, start: bytes) -> None:
    """What does not begin with a header of ours (a web page, say) gets nothing at all."""
    stranger = raw()
    stranger.send(start)
    with pytest.raises((EOFError, ConnectionError)):
        stranger.get()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"Content-Length: " + b"1" * 5000, "header"),
        (b"Content-Type: x\r\n\r\n", "Content-Length"),
        (b"Content-Length: -5\r\n\r\n", "number"),
        (b"Content-Length: %d\r\n\r\n" % (MAX_BODY + 1), "limit"),
        (b"Content-Length: 2\r\nnonsense\r\n\r\n{}", "colon"),
    ],
)
def test_broken_frames_are_named_and_the_connection_ends(client: Raw, data: bytes, words: str) -> None:
    """Where the next message begins is not known any more: an error says why, then the connection closes."""
    client.send(data)
    assert words in client.get()["error"]["message"]
    with pytest.raises((EOFError, ConnectionError)):
        client.get()


def test_an_id_in_use_is_refused(client: Raw) -> None:
    """A second request with the id of one that waits is refused, so that no reply is ambiguous; the first goes on."""
    client.call("openprogram/session/create", {"id": "s"})
    subscription = {"jsonrpc": "2.0", "id": 5, "method": "openprogram/result", "params": {"runId": "0" * 32}}
    client.put(subscription)
    client.put(subscription)
    replies = [client.get(), client.get()]
    assert [reply["id"] for reply in replies] == [5, 5]
    assert sorted(reply["error"]["code"] for reply in replies) == [-32600, -32051]


def test_what_nobody_asked_is_dropped(client: Raw) -> None:
    """A response with an unknown id, an unknown notification and the cancel of nothing have no effect and no reply."""
    client.put({"jsonrpc": "2.0", "id": "op:1", "result": 3})
    client.put({"jsonrpc": "2.0", "id": 3, "error": {"code": 1, "message": "x"}})
    client.notify("openprogram/nothing", {})
    client.notify("nothing/at/all")
    client.notify("$/cancelRequest", {"id": 99})
    client.notify("$/cancelRequest", {"id": None})
    client.send(framed(STATUS))
    assert client.get()["id"] == 7


def test_a_thousand_requests_get_a_thousand_replies(client: Raw) -> None:
    """Pipelined requests are answered once each."""
    ids = [client.request("openprogram/status" if number % 2 else "openprogram/nothing") for number in range(1000)]
    assert sorted(client.get()["id"] for _ in ids) == ids


def test_bodies_and_secrets_are_not_logged(daemon: Daemon, raw: Connect, client: Raw) -> None:
    """Whatever is asked, also what fails or is no message, the log holds nothing of it."""
    secret = f"secret-{os.urandom(8).hex()}"
    client.send(framed(b'{"x": "%b"' % secret.encode()))
    client.get()
    client.error(f"openprogram/{secret}")
    client.error("openprogram/run", {"runId": "0" * 32, "function": secret, "workspace": secret, "args": {"key": secret}})
    client.error("openprogram/model/stream", {"stream": "s", "model": f"nobody:{secret}", "new": []})
    client.notify("openprogram/model/cancel", {"stream": [secret]})
    client.call("initialize", {"processId": None, "rootUri": None, "capabilities": {}, "initializationOptions": {"key": secret}})
    client.error("textDocument/codeLens", {"textDocument": [secret], "key": secret})
    client.call("openprogram/status")
    assert daemon.stop() == 0
    log = daemon.log.read_text()
    assert "listening" in log
    assert secret not in log
