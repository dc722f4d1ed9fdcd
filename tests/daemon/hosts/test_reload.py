"""Saved code is what runs: at once, also in helpers; what does not load leaves the last good version serving."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from openprogram_daemon.errors import RefusedError
from openprogram_daemon.hosts.pool import Assignment

from openprogram.errors import UnknownTargetError, UsageError
from tests.daemon.hosts.support import HEAD, is_alive, running, served, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")


def version(number: int) -> str:
    return f"@agentic_function\ndef f():\n    return {number}\n"


USES_HELPER = "import helper\n@agentic_function\ndef f():\n    return helper.value\n"
USES_HELPER_LATE = "@agentic_function\ndef f():\n    import helper\n    return helper.value\n"


def test_what_was_saved_is_what_runs(tmp_path: Path) -> None:
    """Save and call without a pause, twenty times in a row, each text as long as the one before."""

    async def test() -> None:
        async with served(tmp_path, {"a.py": version(10)}) as here:
            for number in range(10, 30):
                here.write({"a.py": version(number)})
                assert await here.call("a.py:f") == number

    running(test)


@pytest.mark.parametrize("user", [USES_HELPER, USES_HELPER_LATE], ids=["at the top", "in the function"])
def test_a_helper_that_was_saved_is_what_runs(tmp_path: Path, user: str) -> None:
    """The same for a module that the function's module imports, when it is loaded or later."""

    async def test() -> None:
        async with served(tmp_path, {"a.py": user, "helper.py": "value = 10\n"}) as here:
            for number in range(10, 20):
                here.write({"helper.py": f"value = {number}\n"})
                assert await here.call("a.py:f") == number

    running(test)


def test_unchanged_code_keeps_its_worker(tmp_path: Path) -> None:
    """A touch, comments and blank lines restart nothing; the positions move."""

    async def test() -> None:
        async with served(tmp_path, {"a.py": version(1)}) as here:
            first = await here.start("a.py:f")
            await first.done
            line = (await here.hosts.find("w", "f")).line
            (tmp_path / "a.py").touch()
            here.write({"a.py": "# a comment\n\n" + version(1)})
            second = await here.start("a.py:f")
            await second.done
            assert second.pid == first.pid
            assert (await here.hosts.find("w", "f")).line == line + 2
            here.write({"a.py": "# a comment\n\n" + version(2)})
            assert await here.call("a.py:f") == 2

    running(test)


@pytest.mark.parametrize("broken", ["a.py", "helper.py"])
def test_a_syntax_error_leaves_the_last_good_version_serving(tmp_path: Path, broken: str) -> None:
    """The call is answered with a warning, by idle and by new workers; the error stands on its line with the functions and is gone when it is mended."""
    good = {"a.py": USES_HELPER, "helper.py": "value = 1\n"}

    async def test() -> None:
        async with served(tmp_path, good) as here:
            assert await here.call("a.py:f") == 1
            (tmp_path / broken).write_text("x = 1\n\ndef broken(:\n")
            for _ in range(3):
                assignments = [await here.start("a.py:f") for _ in range(2)]
                assert {(await assignment.done).result for assignment in assignments} == {1}
                for assignment in assignments:
                    assert assignment.warning is not None and f"{broken}:3" in assignment.warning and "a.py answered" in assignment.warning
            found = await here.hosts.functions("w")
            assert [(error.file, error.line, error.serving) for error in found.errors] == [(broken, 3, True)]
            assert [info.name for info in found.functions] == ["f"]
            here.write(good | {"helper.py": "value = 2\n"})
            assignment = await here.start("a.py:f")
            assert (await assignment.done).result == 2 and assignment.warning is None
            assert (await here.hosts.functions("w")).errors == []

    running(test)


@pytest.mark.parametrize(
    ("text", "kind", "line"),
    [("def f(:\n", "SyntaxError", 1), ("\nraise OSError('at import')\n", "OSError", 2), ("import nothing_of_that_name\n", "ModuleNotFoundError", 1)],
)
def test_what_never_loaded_is_an_error_of_the_run(tmp_path: Path, text: str, kind: str, line: int) -> None:
    """There is nothing to fall back to: the run ends with the import's error, `functions` shows it, and it is gone when it is mended."""

    async def test() -> None:
        async with served(tmp_path, {"helper.py": text, "a.py": USES_HELPER}) as here:
            done = await here.run("a.py:f")
            assert done.status == "error" and done.error is not None and done.error["type"] == kind
            assert (done.error["file"], done.error["line"]) == (str(tmp_path / "helper.py"), line)
            assert [(error.file, error.line) for error in (await here.hosts.functions("w")).errors] == [("helper.py", line)]
            here.write({"helper.py": "value = 5\n"})
            assert (await here.hosts.functions("w")).errors == []
            assert await here.call("a.py:f") == 5

    running(test)


def test_a_module_that_appears_is_found(tmp_path: Path) -> None:
    """An import that failed for want of a file works once the file is there."""

    async def test() -> None:
        async with served(tmp_path, {"a.py": USES_HELPER}) as here:
            assert (await here.run("a.py:f")).status == "error"
            here.write({"helper.py": "value = 7\n"})
            assert await here.call("a.py:f") == 7

    running(test)


def test_an_import_error_is_shown_until_it_is_mended(tmp_path: Path) -> None:
    """Other files that are saved change nothing about it; the missing module, when it is there, does."""

    async def test() -> None:
        async with served(tmp_path, {"a.py": USES_HELPER, "b.py": version(1)}) as here:
            assert (await here.run("a.py:f")).status == "error"

            async def shown() -> list[str]:
                return [error.file for error in (await here.hosts.functions("w")).errors]

            assert await shown() == ["a.py"]
            here.write({"b.py": version(2), "other.py": version(1)})
            assert await here.call("b.py:f") == 2
            assert await shown() == ["a.py"]
            here.write({"helper.py": "value = 7\n"})
            assert await here.call("a.py:f") == 7
            assert await shown() == []

    running(test)


@pytest.mark.parametrize("how", ["os._exit(3)", "sys.exit(3)"])
def test_a_module_that_ends_the_process_is_reported(tmp_path: Path, how: str) -> None:
    """Leaving while being imported is an error of the run."""

    async def test() -> None:
        async with served(tmp_path, {"a.py": f"{how}\n{version(1)}"}) as here:
            done = await here.run("a.py:f")
            assert done.status == "error" and done.error is not None and "3" in done.error["message"]
            here.write({"a.py": version(1)})
            assert await here.call("a.py:f") == 1

    running(test)


def test_one_broken_file_hides_nothing_but_itself(tmp_path: Path) -> None:
    """Others are served anew; the broken one is served from the version that it had."""

    async def test() -> None:
        async with served(tmp_path, {"a.py": version(1), "b.py": version(1)}) as here:
            assert await here.call("a.py:f") == await here.call("b.py:f") == 1
            (tmp_path / "b.py").write_text("def f(:\n")
            here.write({"a.py": version(2)})
            assert await here.call("a.py:f") == 2
            broken = await here.start("b.py:f")
            assert (await broken.done).result == 1 and broken.warning is not None
            here.write({"a.py": version(3)})
            assert await here.call("a.py:f") == 3
            assert await here.call("b.py:f") == 1

    running(test)


LONG = """
import helper
@agentic_function
def f(flag: str):
    print("begun", flush=True)
    while not os.path.exists(flag):
        time.sleep(0.01)
    return [helper.value, VERSION]
"""


def test_a_run_finishes_on_its_own_code(tmp_path: Path) -> None:
    """Its module and helper are what they were when it began, while newer calls run newer code; afterwards its worker is ended."""

    async def test() -> None:
        files = {"a.py": LONG + "VERSION = 1\n", "helper.py": "value = 1\n"}
        async with served(tmp_path, files) as here:
            old = await here.start("a.py:f", flag=str(tmp_path / "go"))
            here.write({"a.py": LONG + "VERSION = 2\n", "helper.py": "value = 2\n"})
            assert await here.call("a.py:f", flag="/") == [2, 2]
            (tmp_path / "go").touch()
            assert (await old.done).result == [1, 1]
            await until(lambda: not is_alive(old.pid))

    running(test)


def test_at_most_three_old_versions_run(tmp_path: Path) -> None:
    """A fifth version is refused, naming the oldest run, until that has ended."""

    async def test() -> None:
        async with served(tmp_path, {"helper.py": "value = 0\n"}) as here:
            runs: list[Assignment] = []
            for number in range(4):
                here.write({"a.py": LONG + f"VERSION = {number}\n"})
                runs.append(await here.start("a.py:f", flag=str(tmp_path / "go")))
            here.write({"a.py": LONG + "VERSION = 4\n"})
            with pytest.raises(RefusedError, match=runs[0].run.run_id):
                await here.start("a.py:f", flag="/")
            await here.hosts.cancel(runs[0].run.run_id, 5.0)
            assert await here.call("a.py:f", flag="/") == [0, 4]

    running(test)


def test_the_old_name_is_unknown_after_a_rename(tmp_path: Path) -> None:
    """The new name is found at once; the error for the old one names it."""

    async def test() -> None:
        async with served(tmp_path, {"a.py": version(1)}) as here:
            assert (await here.hosts.find("w", "f")).name == "f"
            here.write({"a.py": version(1).replace("def f(", "def fresh(")})
            assert (await here.hosts.find("w", "fresh")).name == "fresh"
            for target in ("f", "a.py:f"):
                with pytest.raises(UnknownTargetError):
                    await here.hosts.find("w", target)
            done = await here.run("a.py:f")
            assert done.error is not None and done.error["kinds"][0] == "UnknownTargetError"

    running(test)


@pytest.mark.parametrize(
    ("file", "line", "helper", "name"),
    [
        ("pack/a.py", "from .y import value", "pack/y.py", "pack.a"),
        ("src/pack/a.py", "from pack.y import value", "src/pack/y.py", "pack.a"),
        ("space/deep/a.py", "from ..y import value", "space/y.py", "space.deep.a"),
        ("tools/a.py", "from y import value", "tools/y.py", "a"),
        ("json.py", "from y import value", "y.py", "json__file"),
    ],
    ids=["relative import", "src layout", "namespace package", "script", "named like a standard module"],
)
def test_modules_are_imported_as_python_would(tmp_path: Path, file: str, line: str, helper: str, name: str) -> None:
    """Each layout loads under its right name, and its helper is followed when it changes."""
    code = f"{line}\n@agentic_function\ndef f():\n    return [__name__, value]\n"
    packages = {"pack/__init__.py": "", "src/pack/__init__.py": ""}

    async def test() -> None:
        async with served(tmp_path, {place: "" for place in packages if file.startswith(place.removesuffix("__init__.py"))}) as here:
            here.write({file: code, helper: "value = 1\n"})
            assert await here.call(f"{file}:f") == [name, 1]
            here.write({helper: "value = 2\n"})
            assert await here.call(f"{file}:f") == [name, 2]

    running(test)


@pytest.mark.parametrize(
    ("target", "found"),
    [
        ("only", "pack/a.py:only"),
        ("pack/a.py:twice", "pack/a.py:twice"),
        ("./pack/a.py:twice", "pack/a.py:twice"),
        ("pack.b:twice", "pack/b.py:twice"),
        ("Box.method_of_class", "pack/b.py:Box.method_of_class"),
        ("single.py", "single.py:alone"),
        ("shown", "single.py:alone"),
        (".hidden/late.py:late", ".hidden/late.py:late"),
        ("twice", UsageError),
        ("method", UsageError),
        ("onyl", UnknownTargetError),
        ("pack/none.py:only", UnknownTargetError),
        ("pack.none:only", UnknownTargetError),
    ],
)
def test_targets_are_found_as_they_are_written(tmp_path: Path, target: str, found: str | type[Exception]) -> None:
    """By path, by module, by a name that is unique; what is not found names what comes close."""
    function = "@agentic_function\ndef {}():\n    return 1\n"
    box = "class Box:\n    @classmethod\n    @agentic_function\n    def method_of_class(cls): ...\n    @agentic_function\n    def method(self): ...\n"
    files = {
        "pack/a.py": function.format("only") + function.format("twice"),
        "pack/b.py": function.format("twice") + box,
        "single.py": function.format("alone").replace("@agentic_function", "@agentic_function(name='shown')"),
        ".hidden/late.py": function.format("late"),
    }

    async def test() -> None:
        async with served(tmp_path, files) as here:
            if isinstance(found, str):
                info = await here.hosts.find("w", target)
                assert f"{info.file}:{info.qualname}" == found
                return
            with pytest.raises(found) as refused:
                await here.hosts.find("w", target)
            assert target != "onyl" or "only" in str(refused.value)

    running(test)


def test_events_tell_what_a_file_holds_now(tmp_path: Path) -> None:
    """Each save brings the whole set of its file."""

    async def test() -> None:
        async with served(tmp_path, {"a.py": version(1)}) as here:
            here.events.clear()
            here.write({"a.py": version(1) + "\n@agentic_function\ndef g():\n    return 2\n"})
            await until(lambda: here.events)
            event = here.events[-1]
            assert (event.workspace, event.file, [info.name for info in event.functions]) == ("w", "a.py", ["f", "g"])
            (tmp_path / "a.py").write_text(HEAD + "def f(:\n")
            await until(lambda: here.events[-1].error)
            assert [info.name for info in here.events[-1].functions] == ["f", "g"]
            (tmp_path / "a.py").unlink()
            await until(lambda: not here.events[-1].functions)

    running(test)


def test_saving_while_calling_never_mixes_versions(tmp_path: Path) -> None:
    """Twenty calls during a hundred saves of module and helper: each answer is of versions that were saved, and none is older than the call."""

    async def test() -> None:
        code = "import helper\n@agentic_function\ndef f():\n    return [helper.value, VERSION]\n"
        async with served(tmp_path, {"a.py": code + "VERSION = 0\n", "helper.py": "value = 0\n"}) as here:
            saved = 0

            async def save() -> None:
                nonlocal saved
                for number in range(1, 101):
                    for name, text in (("helper.py", f"value = {number}\n"), ("a.py", code + f"VERSION = {number}\n")):
                        here.write({f"{name}.new": text})
                        (tmp_path / f"{name}.new").rename(tmp_path / name)
                    saved = number
                    await asyncio.sleep(0.01)

            saving = asyncio.create_task(save())
            for _ in range(20):
                before = saved
                value, number = await here.call("a.py:f")
                assert before <= value <= 100 and before <= number <= 100
            await saving
            assert await here.call("a.py:f") == [100, 100]

    running(test)


def test_a_call_between_the_two_steps_of_a_save_waits(tmp_path: Path) -> None:
    """A file that was just emptied is not what the author meant."""

    async def test() -> None:
        async with served(tmp_path, {"a.py": version(1)}) as here:
            for number in range(2, 7):
                (tmp_path / "a.py").write_text("")
                start = asyncio.create_task(here.call("a.py:f"))
                await asyncio.sleep(0.002)
                here.write({"a.py": version(number)})
                assert await start == number

    running(test)
