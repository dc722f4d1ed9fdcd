"""The commands that look: functions, sessions, dag, models, doctor, and init which gives something to look at."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from openprogram_cli.__main__ import version_problem
from openprogram_cli.commands.exec import Streamed

from tests.clients.cli.command import Command

TRIAGE = '''
from openprogram import Runtime, agentic_function

def model(content, model="m", response_format=None):
    return "refund"

@agentic_function
def refund(order_id: str) -> str:
    """Pay it back."""
    return f"refunded {order_id}"

@agentic_function
def route(message: str) -> str:
    """Pick what to do."""
    runtime = Runtime(call=model)
    runtime.system = "Be brief."
    picked = runtime.exec(f"Route: {message}")
    return refund(message.split()[-1])
'''


def test_functions_lists_without_importing(openprogram: Command) -> None:
    """Functions are listed with signature, line and summary; a broken file shows its line, and nothing is executed."""
    trap = "from pathlib import Path\nPath('executed').touch()\n"
    openprogram.write({"triage.py": trap + TRIAGE, "broken.py": "x = 1\ndef f(:\n"})
    done = openprogram("functions")
    assert done.code == 0
    assert "route(message: str) -> str" in done.out
    assert "Pick what to do." in done.out
    assert re.search(r"broken\.py\n  line 2: error: invalid syntax", done.out)
    assert not (openprogram.folder / "executed").exists()
    assert not openprogram.home.exists()


def test_functions_as_json(openprogram: Command) -> None:
    """--json gives root, functions and errors in camelCase, for the workspace, a folder or one file."""
    openprogram.write({"pyproject.toml": "", "a/triage.py": TRIAGE, "b/broken.py": "("})
    everything = openprogram("functions", "--json").json
    assert everything["root"] == str(openprogram.folder.resolve())
    assert [(info["name"], info["file"], info["line"]) for info in everything["functions"]] == [("refund", "a/triage.py", 8), ("route", "a/triage.py", 13)]
    assert everything["errors"] == [{"file": "b/broken.py", "line": 1, "message": "'(' was never closed"}]
    assert openprogram("functions", "b", "--json").json["functions"] == []
    assert len(openprogram("functions", "a/triage.py", "--json", cwd=openprogram.folder).json["functions"]) == 2


def test_functions_of_nothing(openprogram: Command) -> None:
    """No functions is a hint and exit code 0, a path that is not there exit code 2."""
    done = openprogram("functions")
    assert (done.code, done.out) == (0, "")
    assert "openprogram init" in done.err
    assert openprogram("functions", "nowhere").code == 2


def test_dag_shows_function_model_call_and_picked_function(openprogram: Command) -> None:
    """The tree of the newest session has one line per call, below its caller, with status and short id."""
    openprogram.write({"triage.py": TRIAGE})
    assert openprogram("run", "triage.py:route", "message=Where is my parcel 1234").code == 0
    done = openprogram("dag")
    assert done.code == 0
    lines = done.out.splitlines()
    assert len(lines) == 4
    assert "route  3 nodes" in lines[0]
    assert re.match(r"route\(message='Where is my parcel 1234'\) → 'refunded 1234'  completed .*\[code-[0-9a-f]{8}\]$", lines[1])
    assert re.match(r"├─ model .*Route: Where.*→ 'refund'  completed .*\[llm-[0-9a-f]{8}\]$", lines[2])
    assert re.match(r"└─ refund\(order_id='1234'\) → 'refunded 1234'  completed .*\[code-[0-9a-f]{8}\]$", lines[3])
    assert "|- model" in openprogram("dag", env={"PYTHONIOENCODING": "ascii"}).out


def test_dag_shows_the_exact_prompt_on_request(openprogram: Command) -> None:
    """--prompt prints what the model was sent, by any unique beginning of the node's id; --json gives the messages."""
    openprogram.write({"triage.py": TRIAGE})
    session = openprogram("run", "triage.py:route", "message=about order 7", "--json").json["session"]
    nodes = openprogram("dag", session[:-2], "--json").json["nodes"]
    llm = next(node["id"] for node in nodes if node["role"] == "llm")
    for shown in (llm, llm[:12], llm.removeprefix("llm-")[:8]):
        assert "Route: about order 7" in openprogram("dag", session, "--prompt", shown).out
    prompt = openprogram("dag", "--prompt", llm, "--json").json
    assert prompt["messages"][-1]["role"] == "user"
    assert "Route: about order 7" in prompt["messages"][-1]["blocks"][-1]["text"]
    code = next(node["id"] for node in nodes if node["role"] == "code")
    refused = openprogram("dag", "--prompt", code)
    assert refused.code == 2
    assert "no model call" in refused.err


PICKING = '''
from openprogram import Runtime, agentic_function

REPLIES = ["no idea", '{"call": "refund", "args": {"order_id": "7"}}']

def model(content, model="m", response_format=None):
    return REPLIES.pop(0)

def refund(order_id: str) -> str:
    """Pay it back."""
    return f"refunded {order_id}"

@agentic_function
def choose(message: str) -> str:
    """Pick what to do."""
    return Runtime(call=model).exec(f"Route: {message}", choices={"refund": refund, "close": ("CLOSED", "Done.")})
'''


def test_dag_shows_the_question_and_the_pick(openprogram: Command) -> None:
    """A model call that picks shows the question without the menu around it, and the pick as a call or why there is none."""
    openprogram.write({"picking.py": PICKING})
    assert openprogram("run", "picking.py:choose", "message=order 7")[:2] == (0, "refunded 7\n")
    lines = openprogram("dag").out.splitlines()
    assert "('Route: order 7') → 'no idea'  no valid pick: no_action  completed" in lines[2]
    assert "→ picks refund(order_id='7')  completed" in lines[3]


def test_dag_takes_the_last_node_without_an_id(openprogram: Command) -> None:
    """--prompt alone shows the last model call's prompt, --node alone the last node, also before another option; a session without model calls says so."""
    openprogram.write({"triage.py": TRIAGE})
    assert openprogram("run", "triage.py:route", "message=about order 7").code == 0
    assert "Route: about order 7" in openprogram("dag", "--prompt").out
    assert openprogram("dag", "--prompt", "--json").json["node"].startswith("llm-")
    assert openprogram("dag", "--node", "--json").json["node"]["name"] == "refund"
    assert openprogram("run", "triage.py:refund", "order_id=1").code == 0
    done = openprogram("dag", "--prompt")
    assert (done.code, done.out) == (2, "")
    assert "holds no model call" in done.err


def test_dag_shows_one_node_whole(openprogram: Command) -> None:
    """--node prints every field of a node, as text and as JSON."""
    openprogram.write({"triage.py": TRIAGE})
    node = openprogram("run", "triage.py:route", "message=x 1", "--json").json["node"]
    assert "status: completed" in openprogram("dag", "--node", node).out
    assert openprogram("dag", "--node", node, "--json").json["node"]["input"] == {"message": "x 1"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("dag", "nosuch"), "`openprogram sessions` lists them"),
        (("dag", "s"), "several sessions: s2, s1"),
        (("dag", ""), "there is no session ''"),
        (("dag", "--node", "nosuch"), "there is no node 'nosuch'"),
        (("dag", "--node", "code-"), "several nodes"),
        (("dag", "--node", ""), "there is no node ''"),
        (("dag", "--node", "x", "--prompt", "y"), "exclude each other"),
        (("sessions", "--limit", "0"), "limit"),
        (("models", "install", "nosuch"), "known: smollm2-135m"),
        (("models", "nosuch"), "No such command"),
        (("exec", " "), "the prompt is empty"),
        (("exec",), "Missing argument"),
        (("rum",), "Did you mean 'run'?"),
        (("--nosuch",), "No such option"),
    ],
)
def test_a_users_mistake_is_one_line_and_exit_code_2(openprogram: Command, arguments: tuple[str, ...], message: str) -> None:
    """Ids that match nothing or several things and malformed command lines name what is there, without a traceback."""
    openprogram.write({"triage.py": TRIAGE})
    for session in ("s1", "s2"):
        assert openprogram("run", "triage.py:route", "message=x", "--session", session).code == 0
    done = openprogram(*arguments)
    assert done.code == 2
    assert message in done.err
    assert len(done.err.splitlines()) == 1


def test_looking_makes_no_store(openprogram: Command) -> None:
    """sessions and dag on an empty home say so and write nothing."""
    assert openprogram("sessions", "--json").json == {"sessions": []}
    assert openprogram("sessions").code == 0
    assert openprogram("dag").code == 2
    assert not openprogram.home.exists()


def test_control_characters_of_data_do_not_reach_the_list(openprogram: Command) -> None:
    """A stored value cannot drive the terminal through the tree or the list of sessions."""
    openprogram.write({"triage.py": TRIAGE})
    assert openprogram("run", "triage.py:refund", "order_id=\x1b[31mred\r\n\x07").code == 0
    out = openprogram("dag").out
    assert "\x1b" not in out
    assert "\x07" not in out
    assert len(out.splitlines()) == 2


def test_doctor_passes_and_fails(openprogram: Command) -> None:
    """Every check is a line; a broken store, home or settings file is a problem with a way to mend it and makes exit code 1; no key is ever shown."""
    broken = {"OPENPROGRAM_MODEL": "nosuch:model", "OPENAI_API_KEY": "sk-secret"}
    openprogram.home.mkdir()
    (openprogram.home / "sessions.sqlite3").write_bytes(b"this is no database" * 100)
    openprogram.write({"pyproject.toml": "[tool"})
    done = openprogram("doctor", "--json", env=broken)
    assert done.code == 1
    states = {check["name"]: check["state"] for check in done.json["checks"]}
    assert {name for name, state in states.items() if state == "problem"} == {"store", "workspace", "model"}
    assert all(check["fix"] for check in done.json["checks"] if check["state"] == "problem")
    text = openprogram("doctor", env=broken)
    assert text.code == 1
    assert "set: OPENAI_API_KEY" in text.out
    assert "sk-secret" not in text.out + done.out
    assert "Traceback" not in text.err


def test_doctor_is_content_with_a_machine_that_has_a_model(openprogram: Command, tmp_path: Path) -> None:
    """With nothing recorded and a model file named, nothing is broken, and looking changes nothing."""
    pytest.importorskip("xllamacpp", reason="the engine of the local model is an extra")
    weights = tmp_path / "any.gguf"
    weights.write_bytes(b"GGUF")
    done = openprogram("doctor", "--json", env={"OPENPROGRAM_MODEL": f"local:{weights}"})
    assert done.json["ok"], done.out
    assert done.code == 0
    assert not openprogram.home.exists()


def test_init_writes_what_runs_and_never_overwrites(openprogram: Command) -> None:
    """init writes an example and a table; a second time it changes nothing; the example is found and imports."""
    done = openprogram("init")
    assert done.code == 0
    assert "hello.py" in done.out
    before = {path.name: path.read_bytes() for path in openprogram.folder.iterdir()}
    assert set(before) == {"hello.py", "pyproject.toml"}
    assert openprogram("init").code == 0
    assert {path.name: path.read_bytes() for path in openprogram.folder.iterdir()} == before
    assert [info["name"] for info in openprogram("functions", "--json").json["functions"]] == ["greet", "answer_or_ask"]
    asked = openprogram("run", "greet")
    assert asked.code == 2
    assert "missing argument: name (str)" in asked.err


def test_the_example_of_init_answers_with_a_model(openprogram: Command) -> None:
    """Both functions of the example work with any model."""
    assert openprogram("init").code == 0
    openprogram.write(
        {
            "try_it.py": """
import json
import hello
from openprogram import Runtime, agentic_function

def model(content, model="m", response_format=None):
    return json.dumps({"call": "answer", "args": {"text": "Paris"}}) if "call" in str(content) else "Hello Ada"

@agentic_function
def both():
    runtime = Runtime(call=model)
    return [hello.greet("Ada", runtime=runtime), hello.answer_or_ask("capital of France?", runtime=runtime)]
"""
        }
    )
    assert openprogram("run", "try_it.py:both", "--json").json["result"] == ["Hello Ada", "Paris"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"[project]\nname = 'x'\n", b"[project]\nname = 'x'\n\n[tool.openprogram]"),
        (b"[project]\r\nname = 'x'", b"[project]\r\nname = 'x'\r\n\r\n[tool.openprogram]\r\n"),
        (b"", b"[tool.openprogram]"),
        (b"[tool.openprogram]\nmodel = 'm'\n", b"[tool.openprogram]\nmodel = 'm'\n"),
    ],
)
def test_init_adds_its_table_to_what_is_there(openprogram: Command, content: bytes, expected: bytes) -> None:
    """The table is appended with the file's own line ends; a file that has one stays as it is."""
    openprogram.write({"pyproject.toml": content})
    assert openprogram("init").code == 0
    assert (openprogram.folder / "pyproject.toml").read_bytes().startswith(expected)


def test_init_leaves_a_broken_file_alone(openprogram: Command) -> None:
    """An invalid pyproject.toml is named and not touched."""
    openprogram.write({"pyproject.toml": "[tool"})
    done = openprogram("init")
    assert done.code == 2
    assert "no valid TOML" in done.err
    assert (openprogram.folder / "pyproject.toml").read_text() == "[tool"


def test_an_answer_is_shown_as_it_comes_and_only_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Text events are printed at once; the result is printed only when it was not; a turn that starts over says so."""
    begun: list[str] = []
    shown = Streamed(begin=lambda: begun.append("begun"), unread=lambda: None)
    for piece in ("Hel", "lo"):
        shown.event({"type": "text", "text": piece})
        assert capsys.readouterr().out == piece
    assert begun == ["begun"]
    shown.event({"type": "usage", "input_tokens": 1})
    shown.finish("Hello")
    assert capsys.readouterr().out == ""
    shown.event({"type": "restart"})
    assert "starts over" in capsys.readouterr().out
    silent = Streamed(begin=lambda: None, unread=lambda: None)
    silent.finish("Hello")
    assert capsys.readouterr().out == "Hello\n"


def test_models_says_what_is_installed(openprogram: Command) -> None:
    """models lists each known model, whether it is here, and the command that fetches it."""
    rows = openprogram("models", "--json").json["models"]
    assert [(row["model"], row["installed"], row["path"]) for row in rows] == [("local:smollm2-135m", False, None)]
    assert "openprogram models install" in openprogram("models").out


def test_help_and_version_are_quick_to_load(openprogram: Command) -> None:
    """--version loads neither typer nor the library; --help of one command loads no other and not pydantic's models of the library."""
    code = "import sys; from openprogram_cli.app import run_command_line as run; code = run({arguments!r}); print(code, *sorted(sys.modules))"

    def loaded(*arguments: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", code.format(arguments=list(arguments))], env=openprogram.environment(), capture_output=True, text=True, check=True
        )
        return done.stdout.splitlines()[-1].split()

    modules = loaded("--version")
    assert modules[0] == "0"
    assert not {"typer", "pydantic", "sqlite3", "asyncio", "httpx", "rich"} & set(modules)
    modules = loaded("run", "--help")
    assert "openprogram_cli.commands.run" in modules
    assert not {"openprogram_cli.commands.dag", "sqlite3", "httpx", "openprogram.store.sqlite"} & set(modules)


def test_help_names_every_command(openprogram: Command) -> None:
    """The help lists all subcommands; no arguments at all is a usage error that shows it."""
    done = openprogram("--help")
    assert done.code == 0
    assert all(f"  {name} " in done.out for name in ("dag", "doctor", "exec", "functions", "init", "models", "run", "sessions"))
    assert openprogram().code == 2


@pytest.mark.parametrize(("version", "problem"), [((3, 10, 4), "Python 3.10"), ((2, 7), "Python 2.7"), ((3, 11), None), ((3, 14, 0), None)])
def test_a_wrong_python_is_named_in_one_line(version: tuple[int, ...], problem: str | None) -> None:
    """An older Python is told which one is needed and how to get there."""
    message = version_problem(version)
    assert message is None if problem is None else problem in str(message)
    assert "\n" not in str(message)
