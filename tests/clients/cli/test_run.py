"""`openprogram run` in a process of its own: results, arguments, errors, recording, endings."""

from __future__ import annotations

import pytest

from tests.clients.cli.command import Command
from tests.clients.cli.samples import AGENTS

RESULTS: list[tuple[tuple[str, ...], str]] = [
    (("agents.py:echo", "text=Where is my parcel 1234?"), "Where is my parcel 1234?\n"),
    (("agents:echo", "text=é 😀"), "é 😀\n"),
    (("echo", "text="), "\n"),
    (("add", "a=40"), "42\n"),
    (("add", "a=1", "b=1"), "2\n"),
    (("nothing",), ""),
    (("later", "n=1"), "[\n  1\n]\n"),
    (("counting", "n=2"), "[\n  0,\n  1\n]\n"),
    (("counting_later", "n=1"), "[\n  0\n]\n"),
    (("point", "x=1"), '{\n  "x": 1,\n  "label": "é"\n}\n'),
    (("nick",), "by another name\n"),
    (("static", "x=1"), "1\n"),
    (("agents.py:nick",), "by another name\n"),
    (("agents:Kind.static", "x=1"), "1\n"),
    (("agents.py:Kind.made", "x=1"), "Kind 1\n"),
    (("ask", "question=why", "--model", "scripted:none"), "forty-two\n"),
]


@pytest.mark.parametrize(("arguments", "out"), RESULTS, ids=[" ".join(row[0]) for row in RESULTS])
def test_the_result_is_all_of_stdout(either: Command, arguments: tuple[str, ...], out: str) -> None:
    """Text is printed as it is, None as nothing, the rest as JSON; nothing else is on either stream."""
    assert either("run", *arguments).whole == (0, out, "")


def test_json_is_one_document_whatever_the_function_prints(either: Command) -> None:
    """With --json stdout is one document with result, session and node; prints of the function and of its children go to stderr."""
    done = either("run", "noisy", "--json")
    assert done.code == 0
    assert done.json["result"] == {"done": True}
    assert "printed é" in done.err
    assert "from a child" in done.err
    nodes = either("dag", done.json["session"], "--json").json["nodes"]
    assert [(node["id"], node["name"], node["status"]) for node in nodes] == [(done.json["node"], "noisy", "completed")]


def test_prints_go_to_stdout_before_the_result(either: Command) -> None:
    """Without --json what a function prints stays on stdout, in order."""
    assert either("run", "noisy").out == 'printed é\nfrom a child\n{\n  "done": true\n}\n'


USAGE: list[tuple[tuple[str, ...], str]] = [
    ((), "Missing argument"),
    (("ecko", "text=x"), "did you mean echo"),
    (("zzz",), "`openprogram functions` lists"),
    (("agents.py:ecko",), "did you mean echo"),
    (("agents.py:zzz",), "it has echo, add"),
    (("agents.py:plain",), "without @agentic_function"),
    (("agents.py:Kind",), "is a class"),
    (("agents.py:Kind.method",), "is a method"),
    (("agents.py:outer.<locals>.f",), "inside another function"),
    (("agents.py:",), "agents.py:echo"),
    (("agents.py",), "agents.py:echo"),
    (("",), "names no function"),
    ((":",), "names no function"),
    (("agent.py:echo",), "did you mean agents.py"),
    (("nowhere/agents.py:echo",), "there is no file"),
    ((".:echo",), "is a folder"),
    (("./:echo",), "is a folder"),
    (("nomodule:echo",), "there is no module 'nomodule'"),
    (("agents.deeper:echo",), "there is no module"),
    (("not-a-name:echo",), "no module name"),
    (("broken.py:f",), "openprogram: broken.py:2: invalid syntax"),
    (("binary.py:f",), "binary.py:1: the file is not valid utf-8"),
    (("imports_broken.py:f",), "broken.py:2: invalid syntax"),
    (("add",), "missing argument: a (int)"),
    (("add", "a=x"), "argument a='x' is not of type int"),
    (("add", "a=1", "c=1"), "no argument 'c'"),
    (("add", "a=@nofile"), "cannot read 'nofile'"),
    (("add", "a=1", "--bogus"), "name=value"),
    (("add", "a=1", "--timeout", "soon"), "--timeout soon"),
    (("add", "a=1", "--timeout", "0"), "--timeout 0"),
    (("add", "a=1", "--timeout", "nan"), "--timeout nan"),
    (("add", "a=1", "--workdir", "nowhere"), "'nowhere' is no folder"),
    (("add", "a=1", "--session", "../x"), "may not be a path"),
    (("ask", "question=x", "runtime=y"), "filled in by OpenProgram"),
    (("twice",), "twice/a.py:twice, twice/b.py:twice"),
]


@pytest.mark.parametrize(("arguments", "message"), USAGE, ids=[" ".join(row[0]) or "nothing" for row in USAGE])
def test_a_users_mistake_is_two_lines_and_exit_code_2(either: Command, arguments: tuple[str, ...], message: str) -> None:
    """Unknown targets (with the near names), wrong arguments and unreadable files: one or two lines on stderr, nothing on stdout, no session."""
    twice = "from openprogram import agentic_function\n@agentic_function\ndef twice(): ...\n"
    either.write({"broken.py": "x = 1\ndef f(:\n", "binary.py": b"\xff\xf0", "imports_broken.py": "import broken\n"})
    either.write({"twice/a.py": twice, "twice/b.py": twice})
    before = either("sessions", "--json").json
    done = either("run", *arguments)
    assert done.code == 2, done.err
    assert message in done.err
    assert "Traceback" not in done.err
    assert 1 <= len(done.told.splitlines()) <= 2
    assert done.out == ""
    assert either("sessions", "--json").json == before
    assert not (either.local and either.home.exists())


def test_a_function_that_raises_shows_the_users_own_traceback(either: Command) -> None:
    """The traceback begins in the user's file, keeps its chain, and holds no frame of OpenProgram; the exit code is 1."""
    done = either("run", "outer", "text=é")
    assert done.code == 1
    assert done.out == ""
    assert "RuntimeError: no number: é" in done.err
    assert "ValueError: invalid literal" in done.err
    files = {line.split('"')[1] for line in done.err.splitlines() if line.strip().startswith("File ")}
    assert files == {str((either.folder / "agents.py").resolve())}


@pytest.mark.parametrize("arguments", [("later", "n=1"), ("counting_later", "n=1")], ids=["async", "async generator"])
def test_an_async_failure_shows_no_frames_of_the_event_loop(agents: Command, arguments: tuple[str, ...]) -> None:
    """Frames of asyncio that lead to user code are left out."""
    agents.write({"agents.py": AGENTS.replace("return [n]", "raise LookupError('l')").replace("yield number", "raise LookupError('l'); yield")})
    done = agents("run", *arguments)
    assert done.code == 1
    assert "LookupError: l" in done.err
    assert "asyncio" not in done.err.replace("await asyncio", "")


def test_a_failure_is_data_under_json(either: Command) -> None:
    """A run that failed still gives one document, with the error and the node that failed."""
    done = either("run", "outer", "text=x", "--json")
    assert done.code == 1
    assert done.json["error"] == {"type": "RuntimeError", "message": "no number: x"}
    assert done.json["result"] is None
    node = either("dag", "--node", done.json["node"], "--json").json["node"]
    assert (node["name"], node["status"]) == ("outer", "error")


@pytest.mark.parametrize("code", [0, 3])
def test_a_function_that_calls_sys_exit_did_not_return(either: Command, code: int) -> None:
    """The run failed whatever code it gave, and the exit code, --json and the node say the same."""
    done = either("run", "leave", f"code={code}", "--json")
    assert done.code == 1
    assert done.json["error"] == {"type": "SystemExit", "message": f"the function called sys.exit({code})"}
    assert done.told == f"openprogram: the function called sys.exit({code}), so it did not return\n"
    assert either("dag", "--node", done.json["node"], "--json").json["node"]["status"] == "error"


def test_a_module_that_raises_shows_its_traceback(either: Command) -> None:
    """A file that fails when imported is a failed run with the user's frames only; a missing import says which."""
    either.write({"bad.py": "def go():\n    raise KeyError('k')\ngo()\n", "needs.py": "import not_there_at_all\n", "quits.py": "raise SystemExit(4)\n"})
    done = either("run", "bad.py:f")
    assert done.code == 1
    assert "KeyError: 'k'" in done.err
    assert "bad.py" in done.err
    assert "openprogram_cli" not in done.err
    assert "importlib" not in done.err
    missing = either("run", "needs:f")
    assert missing.code == 1
    assert "No module named 'not_there_at_all'" in missing.err
    assert either("run", "quits.py:f").code == 1


def test_no_model_is_exit_code_3(either: Command) -> None:
    """A model that cannot be had ends the run in two lines at most with code 3, in exec as in run."""
    either.write({"needs_model.py": "from openprogram import agentic_function\n@agentic_function\ndef say(runtime):\n    return runtime.exec('x')\n"})
    for arguments in (("run", "needs_model.py:say", "--model", "nosuch:model"), ("exec", "hello", "--model", "nosuch:model")):
        done = either(*arguments)
        assert done.code == 3
        assert "nosuch" in done.err
        assert "Traceback" not in done.err
        assert len(done.told.splitlines()) <= 2


@pytest.mark.parametrize("source", ["flag", "environment", "workspace"])
def test_the_model_comes_from_flag_environment_or_workspace(either: Command, source: str) -> None:
    """--model comes before the environment, and that before the workspace's table."""
    either.write({"asks.py": "from openprogram import agentic_function\n@agentic_function\ndef say(runtime):\n    return runtime.exec('x')\n"})
    either.write({"pyproject.toml": "[tool.openprogram]\nmodel = 'workspace:m'\n"})
    flags = ("--model", "flag:m") if source == "flag" else ()
    env = {} if source == "workspace" else {"OPENPROGRAM_MODEL": "environment:m"}
    done = either("run", "asks.py:say", *flags, env=env)
    either.write({"pyproject.toml": ""})
    assert done.code == 3, done.err
    assert f"'{source}" in done.err


def test_a_session_goes_on(either: Command) -> None:
    """Two runs with the same --session are one session with both calls; without it each run is its own."""
    for a in (1, 2):
        assert either("run", "add", f"a={a}", "--session", "mine").code == 0
    assert either("run", "add", "a=3").code == 0
    sessions = either("sessions", "--json", "--limit", "2").json["sessions"]
    assert [info["nodes"] for info in sessions] == [1, 2]
    assert sessions[1]["id"] == "mine"
    second = either("run", "add", "a=4", "--session", "mine", "--json").json
    assert either("dag", "mine", "--node", second["node"], "--json").json["node"]["input"]["a"] == 4


def test_an_unwritable_home_costs_a_warning_not_the_run(agents: Command) -> None:
    """When nothing can be recorded the function runs all the same; a session that was asked for is then an error."""
    agents.home.write_text("a file where a folder should be")
    done = agents("run", "add", "a=1")
    assert (done.code, done.out) == (0, "3\n")
    assert "not recorded" in done.err
    assert agents("run", "add", "a=1", "--session", "s").code == 1


def test_the_working_folder_is_that_of_the_option(either: Command) -> None:
    """--workdir is where the function runs; target and files are still seen from where the command was given."""
    either.write({"sub/x.txt": "", "text.txt": "from here"})
    assert either("run", "agents.py:where", "--workdir", "sub").out.strip() == str((either.folder / "sub").resolve())
    assert either("run", "agents.py:echo", "text=@text.txt", "--workdir", "sub").out == "from here\n"
    assert either("run", "echo", "text=@-", stdin="gelesen é".encode()).out == "gelesen é\n"


@pytest.mark.parametrize("environment", [{"LC_ALL": "C"}, {"PYTHONIOENCODING": "cp1252"}, {"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0"}])
def test_every_result_can_be_printed_in_every_encoding(agents: Command, environment: dict[str, str]) -> None:
    """A terminal that cannot show a character gets its escape; JSON stays JSON; a lone surrogate breaks nothing."""
    text = "snowman ☃ emoji 😀"
    done = agents("run", "echo", f"text={text}", "--json", env=environment)
    assert done.code == 0
    assert done.json["result"] == text
    assert agents("run", "echo", f"text={text}", env=environment).code == 0
    assert agents("run", "echo", b"text=\xff", env=environment).code == 0
    assert agents("run", "outer", f"text={text}", env=environment).code == 1
    assert agents("dag", env=environment).code == 0
    assert agents("functions", env=environment).code == 0
