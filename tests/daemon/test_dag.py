"""The DAG over the wire: pages, frames, prompts and sessions, and what is asked wrongly."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from openprogram_daemon import views
from openprogram_protocol.errors import ErrorCode
from openprogram_protocol.framing import MAX_BODY

from tests.daemon.support import Raw

MEGABYTE = 1024 * 1024


@pytest.fixture
def frame(client: Raw) -> str:
    """The main frame of the session ``s``."""
    return client.call("openprogram/session/create", {"id": "s", "title": "Ünï 😀"})["frame"]


def node(frame: str, name: str, role: str = "code", **fields: Any) -> dict[str, Any]:
    return {"id": name, "session": "s", "role": role, "name": name, "frame": frame, **fields}


def append(client: Raw, frame: str, name: str, role: str = "code", opens: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    params: dict[str, Any] = {"node": node(frame, name, role, **fields)}
    return client.call("openprogram/dag/append", params if opens is None else {**params, "opens": opens})["node"]


def close(client: Raw, name: str, **fields: Any) -> dict[str, Any]:
    return client.call("openprogram/dag/update", {"id": name, "status": "completed", "endedAt": 2.0, **fields})["node"]


def names(client: Raw, **params: Any) -> list[str]:
    return [found["id"] for found in client.call("openprogram/dag/nodes", {"session": "s", **params}).get("nodes", [])]


def test_pages_follow_each_other(client: Raw, frame: str) -> None:
    """Nodes come by their numbers, as many as were asked for behind the one that is named; ids bring just those that exist."""
    for number in range(7):
        append(client, frame, f"n{number}")
    numbers = [found["seq"] for found in client.call("openprogram/dag/nodes", {"session": "s"})["nodes"]]
    assert numbers == sorted(numbers)
    assert names(client, limit=3) == ["n0", "n1", "n2"]
    assert names(client, after=numbers[2], limit=3) == ["n3", "n4", "n5"]
    assert names(client, after=numbers[-1]) == names(client, limit=0) == names(client, limit=-1) == []
    assert names(client, after=-5, limit=1) == ["n0"]
    assert sorted(names(client, ids=["n6", "none", "n1"])) == ["n1", "n6"]


def test_a_page_is_never_too_large_for_a_message(client: Raw, frame: str) -> None:
    """Whoever pages through a session of large nodes gets all of them, in pages of some megabytes; one node whole is larger than any of it."""
    for number in range(40):
        append(client, frame, f"n{number:02}", input={"x": "y" * 2 * MEGABYTE})
    seen: list[str] = []
    pages, after = 0, 0
    while found := client.call("openprogram/dag/nodes", {"session": "s", "after": after}).get("nodes", []):
        seen += [one["id"] for one in found]
        pages, after = pages + 1, found[-1]["seq"]
    assert seen == [f"n{number:02}" for number in range(40)]
    assert 4 <= pages <= 10


def test_an_answer_that_no_message_holds_is_an_error(client: Raw, frame: str) -> None:
    """It says how large it is; the connection goes on."""
    for number in range(4):
        append(client, frame, f"n{number}", input={"x": "y" * 20 * MEGABYTE})
    error = client.error("openprogram/dag/nodes", {"ids": [f"n{number}" for number in range(4)]})
    assert (error["code"], f"{MAX_BODY:,}" in error["message"]) == (ErrorCode.USAGE, True)
    assert names(client, ids=["n0", "n1"]) == ["n0", "n1"]


def test_a_node_is_written_once_and_closed_once(client: Raw, frame: str) -> None:
    """A second node of one id is refused, a second end changes nothing."""
    first = append(client, frame, "n", input={"class": 1, "a-b": [None, 2.5]})
    assert client.error("openprogram/dag/append", {"node": node(frame, "n")})["code"] == ErrorCode.STORE
    assert close(client, "n", output={"é": 1})["output"] == {"é": 1}
    assert close(client, "n", output="another", status="error")["output"] == {"é": 1}
    found = client.call("openprogram/dag/node", {"id": "n"})["node"]
    assert (found["seq"], found["status"], found["input"]) == (first["seq"], "completed", {"class": 1, "a-b": [None, 2.5]})


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("dag/append", {"node": {"id": "x", "session": "none", "role": "code", "name": "f", "frame": "none"}}, ErrorCode.UNKNOWN_SESSION),
        ("dag/append", {"node": {"id": "x", "session": "s", "role": "code", "name": "f", "frame": "none"}}, ErrorCode.STORE),
        ("dag/update", {"id": "none", "status": "completed"}, ErrorCode.STORE),
        ("dag/messages", {"node": "none"}, ErrorCode.STORE),
        ("dag/nodes", {"session": "none"}, ErrorCode.UNKNOWN_SESSION),
        ("dag/nodes", {"session": "s", "after": 2**70}, ErrorCode.STORE),
        ("dag/nodes", {"session": 5}, ErrorCode.INVALID_PARAMS),
        ("sessions", {"id": "none"}, ErrorCode.UNKNOWN_SESSION),
        ("sessions", {"limit": 2**70}, ErrorCode.STORE),
        ("runs", {"limit": 2**70}, ErrorCode.STORE),
        ("session/create", {"id": "../up"}, ErrorCode.USAGE),
    ],
)
def test_what_is_asked_wrongly_is_the_askers_mistake(client: Raw, frame: str, method: str, params: dict[str, Any], code: int) -> None:
    """The error has the code of its kind, says what is wrong, and the store is as it was."""
    error = client.error(f"openprogram/{method}", params)
    assert error["code"] == code
    assert error["message"]
    assert names(client) == []
    assert len(client.call("openprogram/sessions")["sessions"]) == 1


def test_what_does_not_exist_is_nothing(client: Raw, frame: str) -> None:
    """One node or frame that is not there is no error, but nothing."""
    assert client.call("openprogram/dag/node", {"id": "none"}) == {}
    assert client.call("openprogram/dag/frame", {"id": "none"}) == {}


def test_sessions_are_listed_by_their_last_writing(client: Raw, frame: str) -> None:
    """The one written last comes first; pages and one by its id; making one again changes nothing."""
    for name in ("a", "b"):
        client.call("openprogram/session/create", {"id": name})
    append(client, frame, "n")

    def listed(**params: Any) -> list[str]:
        return [found["id"] for found in client.call("openprogram/sessions", params).get("sessions", [])]

    assert listed() == ["s", "b", "a"]
    assert listed(limit=1, offset=1) == ["b"]
    assert listed(limit=-1) == listed(offset=3) == []
    assert listed(id="a") == ["a"]
    again = client.call("openprogram/session/create", {"id": "s", "title": "another"})
    assert (again["title"], again["frame"]) == ("Ünï 😀", frame)
    assert client.call("openprogram/sessions", {"id": "s"})["sessions"][0]["nodes"] == 1


def said(client: Raw, frame: str, name: str, text: str) -> None:
    append(client, frame, name, "user", input={"content": [{"type": "text", "text": text}]}, status="completed")


def test_a_prompt_is_rendered_from_the_store(client: Raw, frame: str) -> None:
    """What a function's model reads: the history of its frame and no other's, each time with what has entered since; old prompts stay as they were."""
    inner = {"id": "inner", "session": "s", "parent": frame, "owner": "f"}
    append(client, frame, "f", opens=inner, input={"x": "outer input"}, metadata={"expose": "io"})
    prompts: list[list[Any]] = []
    for number in range(3):
        append(client, "inner", f"llm{number}", "llm", input={"messages": [{"role": "user", "blocks": [{"type": "text", "text": f"question {number}"}]}]})
        prompts.append(client.call("openprogram/dag/messages", {"node": f"llm{number}"})["messages"])
        close(client, f"llm{number}", output=f"answer {number}", enters=True)
    texts = [str(prompt) for prompt in prompts]
    assert all("outer input" in text for text in texts)
    assert [[f"answer {number}" in text for number in range(3)] for text in texts] == [[False] * 3, [True, False, False], [True, True, False]]
    for shorter, longer in itertools.pairwise(prompts):
        assert longer[: len(shorter)] == shorter
    for number, prompt in enumerate(prompts):
        assert client.call("openprogram/dag/messages", {"node": f"llm{number}"})["messages"] == prompt
    detail = client.call("openprogram/dag/node", {"id": "llm1", "prompt": True})
    assert detail["prompt"][: len(prompts[1])] == prompts[1]
    assert "prompt" not in client.call("openprogram/dag/node", {"id": "f", "prompt": True})
    assert client.error("openprogram/dag/messages", {"node": "f"})["code"] == ErrorCode.STORE


def test_views_that_were_forgotten_are_built_again(client: Raw, frame: str) -> None:
    """More frames than are kept at hand give the same prompts as when they were at hand."""
    count = views.MOST_VIEWS + 20
    for number in range(count):
        owner, inner = f"f{number}", {"id": f"frame{number}", "session": "s", "parent": frame, "owner": f"f{number}"}
        append(client, frame, owner, opens=inner, input={"x": f"input {number}."}, metadata={"expose": "io"})
        append(client, f"frame{number}", f"llm{number}", "llm", input={"messages": []})
    asked = [client.request("openprogram/dag/messages", {"node": f"llm{number}"}) for number in [*range(count), *range(0, count, 7)]]
    first = [client.reply(request)["result"]["messages"] for request in asked]
    assert all(f"input {number}." in str(first[number]) for number in range(count))
    assert first[count:] == first[:count:7]
