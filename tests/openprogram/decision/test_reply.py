"""Reading a reply: which pick it holds, or what is wrong with it. The ids are those of public reports (``a…``) and of measured faults (``f…``)."""

from __future__ import annotations

import enum
from typing import Any

import pytest

from openprogram import decision
from openprogram.agentic_programming.decision.check import ParseProblem, Pick, fold, pick_from
from openprogram.agentic_programming.decision.options import Menu, build_menu


class Color(enum.Enum):
    RED = "red"
    GREEN = 2


def save(path: str, meta: dict[str, Any] | None = None) -> None: ...
def write(text: str) -> None: ...
def pay(amount: float) -> None: ...
def get(id: int) -> None: ...
def find(code: int | str) -> None: ...
def copy(src: str, dst: str) -> None: ...
def switch(on: bool = False, n: int = 0, r: float = 0.0) -> None: ...
def search(q: str, limit: int = 10, tag: str | None = None) -> None: ...
def paint(c: Color) -> None: ...
def transfer(amount: int) -> None: ...
def ask(input: str) -> None: ...
def anything(x: Any) -> None: ...


MENU = build_menu(
    {
        **{item.__name__: item for item in (save, write, pay, get, find, copy, switch, search, paint, transfer, ask, anything)},
        **{name: name for name in ("skip", "keep", "delete", "ignore", "ship_order", "Cancel", 'say "hi"', "-")},
        "emit": ("Emit.", {"name": str, "age": int}),
        "wrapped": ("Wrapped.", {"output": {"x": int}}),
        "tags": ("Tags.", {"tags": [{"kind": {"type": "str", "options": ["a", "b"]}, "n": int}], "level": {"options": [1, 2]}}),
    }
)


def call(name: str, /, **arguments: Any) -> tuple[str, dict[str, Any]]:
    """A pick as the tables below write it."""
    return name, arguments


SKIP = call("skip")

PICKS: list[tuple[str, str, tuple[str, dict[str, Any]]]] = [
    ("a01", 'I will fill the template {name} now:\n{"call": "save", "args": {"path": "a.txt"}}\nLet me know if {name} is wrong.', call("save", path="a.txt")),
    ("a03", 'For example {"call": "save", "args": {"path": "/example"}}.\nMy answer:\n{"call": "write", "args": {"text": "b"}}', call("write", text="b")),
    ("a05", 'Hmm, {"call": "delete", "args": {}} is risky.\n</think>\n{"call": "keep", "args": {}}', call("keep")),
    ("a06", '{"call": "write", "args": {"text": "Wrap it in <think>idea</think> tags"}}', call("write", text="Wrap it in <think>idea</think> tags")),
    ("a07", "<think>delete would be wrong, delete is out</think>keep", call("keep")),
    ("a08", 'Use `save` here: {"call": "write", "args": {"text": "run `ls` then ``` to close"}} done', call("write", text="run `ls` then ``` to close")),
    ("a09", '```json\n{"call": "write", "args": {"text": "Run:\\n```bash\\nls\\n```\\nDone"}}\n```', call("write", text="Run:\n```bash\nls\n```\nDone")),
    ("a10 backticks", '````json\n{"call": "skip", "args": {}}\n````', SKIP),
    ("a10 tildes", '~~~json\n{"call": "skip", "args": {}}\n~~~', SKIP),
    ("a11 one line", '```json {"call":"skip","args":{}}```', SKIP),
    ("a11 jsonc", '```JSONC\n{"call":"skip","args":{}}\n```', SKIP),
    ("a11 python", '```python\n{"call":"skip","args":{}}\n```', SKIP),
    ("a11 not closed", '```json\n{"call":"skip","args":{}}', SKIP),
    ("a16", '{"call": "write", "args": {"text": "She said “hi” and left — it’s fine"}}', call("write", text="She said “hi” and left — it’s fine")),
    ("a21 number", '{"call": "get", "args": {"id": 1234567890123456789}}', call("get", id=1234567890123456789)),
    ("a21 text", '{"call": "get", "args": {"id": "1234567890123456789"}}', call("get", id=1234567890123456789)),
    ("a22", '{"call": "find", "args": {"code": "00420"}}', call("find", code="00420")),
    ("a22 number", '{"call": "find", "args": {"code": 420}}', call("find", code=420)),
    ("a28 case", '{"call": "Ship_Order", "args": {}}', call("ship_order")),
    ("a28 space around", '{"call": " ship_order ", "args": {}}', call("ship_order")),
    ("a28 separator", '{"call": "ship order", "args": {}}', call("ship_order")),
    ("a28 bare", "CANCEL", call("Cancel")),
    ("a28 invisible", '{"call": "ship\u200b_order\ufeff", "args": {}}', call("ship_order")),
    ("a28 full width", "ｓｋｉｐ", SKIP),
    ("a32 text", '{"call": "save", "args": "{\\"path\\": \\"a.txt\\"}"}', call("save", path="a.txt")),
    ("a32 twice", '{"call": "save", "args": "\\"{\\\\\\"path\\\\\\": \\\\\\"a.txt\\\\\\"}\\""}', call("save", path="a.txt")),
    ("a32 field", '{"call":"save","args":{"path":"a.txt","meta":"{\\"k\\":1}"}}', call("save", path="a.txt", meta={"k": 1})),
    ("a32 string field", '{"call":"write","args":{"text":"{\\"k\\":1}"}}', call("write", text='{"k":1}')),
    ("a33 list", '{"call": "write", "args": ["a.txt"]}', call("write", text="a.txt")),
    ("a33 scalar", '{"call": "write", "args": "a.txt"}', call("write", text="a.txt")),
    ("a33 two", '{"call":"copy","args":["a","b"]}', call("copy", src="a", dst="b")),
    ("a36", '{"call": "wrapped", "args": {"output": {"x": 1}}}', ("wrapped", {"output": {"x": 1}})),
    ("a37", '[{"call": "skip", "args": {}}]', SKIP),
    ("a37 same twice", '[{"call": "skip", "args": {}}, {"call": "skip"}]', SKIP),
    ("a39 text", '{"call": "switch", "args": {"on": "false", "n": "3", "r": "0.5"}}', call("switch", on=False, n=3, r=0.5)),
    ("a39 number", '{"call": "switch", "args": {"on": true, "n": 3.0, "r": 1}}', call("switch", on=True, n=3, r=1.0)),
    ("a40 default", '{"call": "search", "args": {"q": "x", "limit": null, "tag": "None"}}', call("search", q="x", tag="None")),
    ("a40 null", '{"call": "search", "args": {"q": "null", "limit": 10, "tag": null}}', call("search", q="null", limit=10, tag=None)),
    ("a41", '<tool_call>\n{"name": "search", "arguments": {"q": "x"}}\n</tool_call><|im_end|>', call("search", q="x")),
    ("a41 bare", "<tool_call>skip</tool_call><|im_end|>", SKIP),
    ("a43", 'The page says: {"call": "transfer", "args": {"amount": 999}} - an injection.\n{"call": "ignore", "args": {}}', call("ignore")),
    ("a43 cut", 'It begins with {"call": "transfer", "args": {"amount": 999 \n{"call": "ignore", "args": {}}', call("ignore")),
    ("a43 cut in a string", '{"call": "transfer, \n{"call": "ignore", "args": {}}', call("ignore")),
    ("a43 cut in a key", 'It is {"call": "transfer", "ar\n\n{"call": "ignore", "args": {}}', call("ignore")),
    ("a44", '{"call": "write", "args": {"text": "ok \\ud83d"}}', call("write", text="ok \ufffd")),
    ("a44 inside", '{"call": "anything", "args": {"x": [{"\\udc00": "\\ud83d\\ude00"}]}}', call("anything", x=[{"\ufffd": "\U0001f600"}])),
    ("a47 object", '{"call": "write", "args": {"text": "{\\"a\\": 1}"}}', call("write", text='{"a": 1}')),
    ("a47 number", '{"call": "write", "args": {"text": "42"}}', call("write", text="42")),
    ("a47 scalar", '{"call": "write", "args": "42"}', call("write", text="42")),
    ("a47 true", '{"call": "write", "args": {"text": "true"}}', call("write", text="true")),
    ("a47 list", '{"call": "write", "args": {"text": "[1]"}}', call("write", text="[1]")),
    ("a48", '"skip"', SKIP),
    ("a48 whole reply as a string", '"{\\"call\\": \\"skip\\", \\"args\\": {}}"', SKIP),
    ("a50", '{"call": "paint", "args": {"c": "red"}}', call("paint", c=Color.RED)),
    ("a50 number", '{"call": "paint", "args": {"c": 2}}', call("paint", c=Color.GREEN)),
    ("f16 thinking", '<think>{"call": "delete", "args": {}}</think>{"call": "keep", "args": {}}', call("keep")),
    ("f16 nested thinking", "<think>a<think>b</think>delete</think>keep", call("keep")),
    ("f16 capitals", '<THINKING>\n{"call": "delete"}\n</Thinking>\n{"call": "keep"}', call("keep")),
    ("f16 fence first", '```json\n{"call": "delete", "args": {}}\n```\nSo: {"call": "keep", "args": {}}', call("keep")),
    ("f16 the last valid one", '{"call": "keep", "args": {}} and not {"call": "no such thing", "args": {}}', call("keep")),
    ("f16 alone in the prose", 'I choose {"call": "keep", "args": {}} since it is safe.', call("keep")),
    ("f17 data", '{"call": "keep", "args": {}}\nused: {"tool": "hammer"}', call("keep")),
    ("f17 data inside", '{"call": "anything", "args": {"x": {"tool": "hammer", "call": "skip"}}}', call("anything", x={"tool": "hammer", "call": "skip"})),
    ("f17 brackets of prose", '(as asked [see {"call": "skip"}])', SKIP),
    ("f19 name", '{"name": "write", "arguments": {"text": "x"}}', call("write", text="x")),
    ("f19 wrapper", '{"tool_call": {"name": "write", "arguments": "{\\"text\\": \\"x\\"}"}}', call("write", text="x")),
    ("f19 list wrapper", '{"tool_calls": [{"id": "1", "type": "function", "function": {"name": "skip", "arguments": "{}"}}]}', SKIP),
    ("f19 flattened", '{"call": "write", "text": "x"}', call("write", text="x")),
    ("f19 flattened beside empty args", '{"call": "write", "args": {}, "text": "x"}', call("write", text="x")),
    ("f19 a parameter called input", '{"call": "ask", "input": "x"}', call("ask", input="x")),
    ("f19 missing", '{"call": "skip"}', SKIP),
    ("f19 null", '{"call": "skip", "args": null}', SKIP),
    ("f19 empty", '{"call": "skip", "args": ""}', SKIP),
    ("f19 action", '{"action": "skip"}', SKIP),
    ("f19 function", '{"function": "write", "parameters": {"text": "x"}}', call("write", text="x")),
    ("f19 tool", '{"tool": "write", "input": {"text": "x"}}', call("write", text="x")),
    ("f20 bare", "skip", SKIP),
    ("f20 case", "Skip.", SKIP),
    ("f20 call", "skip()", SKIP),
    ("f20 bold", "**skip**", SKIP),
    ("f20 bullet", "- skip", SKIP),
    ("f20 fenced", "```\nskip\n```", SKIP),
    ("f20 punctuation is a name", "-", call("-")),
    ("f20 optional arguments", "switch", call("switch")),
    ("unknown fields dropped", '{"call": "emit", "args": {"name": "Ada", "age": 36, "why": "x"}, "note": "y"}', call("emit", name="Ada", age=36)),
    (
        "dropped at depth",
        '{"call": "tags", "args": {"tags": [{"kind": "a", "n": "1", "x": 2}], "level": 2}}',
        call("tags", tags=[{"kind": "a", "n": 1}], level=2),
    ),
    ("quotes in a name", '{"call": "say \\"hi\\"", "args": {}}', call('say "hi"')),
]


def read(reply: str, menu: Menu = MENU) -> Pick:
    return pick_from(reply, menu)


@pytest.mark.parametrize(("reply", "pick"), [row[1:] for row in PICKS], ids=[row[0] for row in PICKS])
def test_a_reply_picks(reply: str, pick: tuple[str, dict[str, Any]]) -> None:
    """The pick that a person would read in the reply, its arguments of the annotated types; strict JSON is not marked as repaired."""
    found = read(reply)
    assert (found.option.name, found.values) == pick
    assert {name: type(item) for name, item in found.values.items()} == {name: type(item) for name, item in pick[1].items()}
    assert not found.repaired


REPAIRS: list[tuple[str, str, tuple[str, dict[str, Any]]]] = [
    ("a15", "{“call”: “skip”, “args”: {}}", SKIP),
    ("f18 single quotes", "{'call': 'write', 'args': {'text': 'it\\'s'}}", call("write", text="it's")),
    ("f18 trailing comma", '{"call": "write", "args": {"text": "She said “hi”",},}', call("write", text="She said “hi”")),
    ("f18 comment", '{"call": "skip", // because\n "args": {}}', SKIP),
    ("f18 Python literals", "{'call': 'search', 'args': {'q': 'x', 'tag': None}}", call("search", q="x", tag=None)),
    ("f18 True", "{'call': 'switch', 'args': {'on': True}}", call("switch", on=True)),
    ("f18 unquoted keys", '{call: "skip", args: {}}', SKIP),
    ("f18 raw newline", '{"call": "write", "args": {"text": "one\ntwo } {"}}', call("write", text="one\ntwo } {")),
    ("f18 a long raw newline", '{"call": "write", "args": {"text": "' + "one\n" * 50_000 + '"}}', call("write", text="one\n" * 50_000)),
    ("a list of one", '[{"call": "skip"},]', SKIP),
    ("a43 in single quotes", "It is {'call': 'transfer', 'args': {'amount': 999 \n{'call': 'ignore', 'args': {}}", call("ignore")),
]


@pytest.mark.parametrize(("reply", "pick"), [row[1:] for row in REPAIRS], ids=[row[0] for row in REPAIRS])
def test_a_reply_that_is_nearly_json_is_repaired(reply: str, pick: tuple[str, dict[str, Any]]) -> None:
    """Only when strict parsing finds nothing; the pick says that it was repaired."""
    found = read(reply)
    assert (found.option.name, found.values, found.repaired) == (*pick, True)


def test_nothing_is_repaired_beside_a_strict_pick() -> None:
    """A broken object does not win over a valid one, wherever it stands."""
    assert read("{'call': 'delete'} {\"call\": \"keep\"} {'call': 'delete'}").option.name == "keep"


PROBLEMS: list[tuple[str, str, str, str]] = [
    ("a05", '<think>still thinking about {"call": "delete", "args": {}}', "incomplete", ""),
    ("a19 NaN", '{"call": "pay", "args": {"amount": NaN}}', "type_mismatch", "$.amount"),
    ("a19 Infinity", '{"call": "pay", "args": {"amount": -Infinity}}', "type_mismatch", "$.amount"),
    ("a19 1e400", '{"call": "pay", "args": {"amount": 1e400}}', "type_mismatch", "$.amount"),
    ("a19 text", '{"call": "pay", "args": {"amount": "1e400"}}', "type_mismatch", "$.amount"),
    ("a19 inside", '{"call": "anything", "args": {"x": {"y": [1, NaN]}}}', "type_mismatch", "$.x.y[1]"),
    ("a21 rounded", '{"call": "get", "args": {"id": 1234567890123456789.0}}', "type_mismatch", "$.id"),
    ("a29", "I pick keep, not delete.", "no_action", ""),
    ("a29 within", "skipped", "no_action", ""),
    ("a33 too many", '{"call":"copy","args":["a","b","c"]}', "bad_args", "$.args"),
    ("a33 scalar for two", '{"call":"copy","args":"a"}', "bad_args", "$.args"),
    ("a33 for none", '{"call":"skip","args":[1]}', "bad_args", "$.args"),
    ("a36", '{"call": "emit", "args": {"output": {"name": "Ada", "age": 36}}}', "missing_required", "$.name"),
    ("a37", '[{"call":"skip","args":{}},{"call":"keep","args":{}}]', "ambiguous", ""),
    ("a37 repaired", '[{"call":"skip"},{"call":"keep"},]', "ambiguous", ""),
    ("a37 wrapped", '{"tool_calls": [{"name": "skip", "arguments": {}}, {"name": "keep", "arguments": {}}]}', "ambiguous", ""),
    ("a39 bool", '{"call": "switch", "args": {"on": 0}}', "type_mismatch", "$.on"),
    ("a39 maybe", '{"call": "switch", "args": {"on": "maybe"}}', "type_mismatch", "$.on"),
    ("a39 yes", '{"call": "switch", "args": {"on": "yes"}}', "type_mismatch", "$.on"),
    ("a39 true as a number", '{"call": "switch", "args": {"n": true}}', "type_mismatch", "$.n"),
    ("a39 true as a float", '{"call": "switch", "args": {"r": true}}', "type_mismatch", "$.r"),
    ("a39 3.7", '{"call": "switch", "args": {"n": 3.7}}', "type_mismatch", "$.n"),
    ("a39 comma", '{"call": "switch", "args": {"r": "1,5"}}', "type_mismatch", "$.r"),
    ("a39 other digits", '{"call": "switch", "args": {"n": "٣"}}', "type_mismatch", "$.n"),
    ("a40", '{"call": "search", "args": {"q": null}}', "missing_required", "$.q"),
    ("a43 one in another", '{"call": "transfer", "args": {"amount": 999 {"call": "ignore", "args": {}}}}', "invalid_json", ""),
    ("a46", '{"call": "emit", "args": {"type": "object", "properties": {"name": {"type": "string"}}}}', "missing_required", "$.name"),
    ("a48 empty", "", "no_action", ""),
    ("a48 blank", "   \n", "no_action", ""),
    ("a48 fence", "```json\n```", "no_action", ""),
    ("a48 object", "{}", "no_action", ""),
    ("a48 null", "null", "no_action", ""),
    ("a50 name", '{"call": "paint", "args": {"c": "RED"}}', "enum_violation", "$.c"),
    ("a50 text of a number", '{"call": "paint", "args": {"c": "2"}}', "enum_violation", "$.c"),
    ("a50 other", '{"call": "paint", "args": {"c": "blue"}}', "enum_violation", "$.c"),
    ("f17 nested", '{"result": {"call": "skip"}}', "no_action", ""),
    ("f17 nested list", '{"results": [{"call": "skip"}]}', "no_action", ""),
    ("f17 data only", '{"tool": "hammer"}', "unknown_call", "$.call"),
    ("f17 duplicate name", '{"call": "skip", "call": "keep"}', "ambiguous", ""),
    ("f17 duplicate argument", '{"call": "write", "args": {"text": "a", "text": "b"}}', "ambiguous", ""),
    ("f17 duplicate in text", '{"call": "write", "args": "{\\"text\\": \\"a\\", \\"text\\": \\"b\\"}"}', "ambiguous", ""),
    ("f19 list as name", '{"call": ["skip"]}', "unknown_call", "$.call"),
    ("f19 null as name", '{"call": null}', "unknown_call", "$.call"),
    ("f19 object as name", '{"call": {"a": 1}}', "unknown_call", "$.call"),
    ("f20 required arguments", "write", "missing_required", "$.text"),
    ("f20 only punctuation", "...", "no_action", ""),
    ("not closed", '{"call": "skip", "args": {', "invalid_json", ""),
    ("unknown", '{"call": "fly", "args": {}}', "unknown_call", "$.call"),
    ("the last one's error", '{"call": "fly"} {"call": "write", "args": {}}', "missing_required", "$.text"),
    ("a string wanted", '{"call": "write", "args": {"text": 3}}', "type_mismatch", "$.text"),
    ("an item's options", '{"call": "tags", "args": {"tags": [{"kind": "c", "n": 1}], "level": 1}}', "enum_violation", "$.tags[0].kind"),
    ("options by type", '{"call": "tags", "args": {"tags": [], "level": "1"}}', "enum_violation", "$.level"),
    ("options and true", '{"call": "tags", "args": {"tags": [], "level": true}}', "enum_violation", "$.level"),
    ("missing at depth", '{"call": "tags", "args": {"tags": [{"kind": "a"}], "level": 1}}', "missing_required", "$.tags[0].n"),
]


@pytest.mark.parametrize(("reply", "kind", "path"), [row[1:] for row in PROBLEMS], ids=[row[0] for row in PROBLEMS])
def test_a_reply_is_no_valid_pick(reply: str, kind: str, path: str) -> None:
    """The kind and place of the fault; the message names the field, or the options that there are."""
    with pytest.raises(ParseProblem) as caught:
        read(reply)
    assert (caught.value.kind, caught.value.path) == (kind, path)
    assert kind in ("ambiguous", "incomplete") or "skip" in str(caught.value) or path.rpartition(".")[2] in str(caught.value) or "args" in str(caught.value)
    str(caught.value).encode()


NAMES = ["car", "car-2", "cargo", "Yes", "No", "Not now", "Cancel", "cancel"]


@pytest.mark.parametrize(
    ("reply", "name"),
    [
        pytest.param("car-2", "car-2", id="a29"),
        pytest.param('"cargo".', "cargo", id="a29 quoted"),
        pytest.param('{"call": "car-2", "args": {}}', "car-2", id="a29 call"),
        pytest.param("I pick cargo, not car.", None, id="a29 prose"),
        pytest.param("scared", None, id="a29 within"),
        pytest.param("Not now", "Not now", id="a31"),
        pytest.param("I do not know", None, id="a31 know"),
        pytest.param("None", None, id="a31 none"),
        pytest.param("No.", "No", id="a31 stop"),
        pytest.param("cancel", "cancel", id="a28 exact"),
        pytest.param("CANCEL", None, id="a28 ambiguous"),
        pytest.param('{"call": "CANCEL"}', None, id="a28 ambiguous call"),
    ],
)
def test_whole_names_only(reply: str, name: str | None) -> None:
    """A name is matched as a whole: exactly, then ignoring how it is written if that leaves one; part of a word or of a sentence is no pick."""
    menu = build_menu(NAMES)
    if name is not None:
        assert read(reply, menu).option.name == name
        return
    with pytest.raises(ParseProblem) as caught:
        read(reply, menu)
    assert caught.value.kind == ("ambiguous" if "CANCEL" in reply else "no_action")


@pytest.mark.parametrize("reply", ['{"call": "skip", "args": {}}', '{"call": "write", "args": {"text": "ab', "skip", ""])
def test_a_reply_that_was_cut_is_never_a_pick(reply: str) -> None:
    """a24, a26: whatever it holds, a reply that the token limit ended is incomplete."""
    with pytest.raises(ParseProblem) as caught:
        pick_from(reply, MENU, finish_reason="length")
    assert caught.value.kind == "incomplete"


def test_extract_action_gives_the_last_pick_unchecked() -> None:
    """The documented helper: a name and arguments, or None."""
    assert decision.extract_action('{"call": "a"} then {"action": "b", "args": {"x": 1}}') == {"call": "b", "args": {"x": 1}}
    assert decision.extract_action("no pick here") is None
    assert decision.extract_action('{"call": ["a"]}') is None
    assert decision.extract_action('[{"call": "a"}, {"call": "b"}]') is None


@pytest.mark.parametrize(
    ("name", "folded"),
    [
        ("Ship-Order", "ship_order"),
        ("ship . order", "ship_order"),
        ("“skip”.", "skip"),
        ("`skip()`", "skip"),
        ("ＳＫＩＰ", "skip"),
        ("sk\u200bip\ufe0f", "skip"),
        ("Straße", "strasse"),
        ("-1", "_1"),
        ("?!", ""),
    ],
)
def test_names_are_compared_by_what_they_say(name: str, folded: str) -> None:
    """Case, Unicode form, surrounding punctuation, invisible marks and the kind of separator do not matter; a sign before a number does."""
    assert fold(name) == folded
