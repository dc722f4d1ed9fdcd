"""A workspace's functions, one for each way a run can go."""

from __future__ import annotations

AGENTS = '''
from __future__ import annotations
import asyncio, dataclasses, subprocess, sys, threading, time
from pathlib import Path
from openprogram import Runtime, agentic_function


@dataclasses.dataclass
class Point:
    x: int
    label: str


@agentic_function
def echo(text: str) -> str:
    """Give back what came."""
    return text


@agentic_function
def add(a: int, b: int = 2) -> int:
    return a + b


@agentic_function
def point(x: int) -> Point:
    return Point(x, "é")


@agentic_function
def nothing(): ...


@agentic_function
def noisy():
    print("printed é")
    subprocess.run([sys.executable, "-c", "print('from a child')"], check=True)
    return {"done": True}


@agentic_function
async def later(n: int) -> list[int]:
    await asyncio.sleep(0)
    return [n]


@agentic_function
def counting(n: int):
    yield from range(n)


@agentic_function
async def counting_later(n: int):
    for number in range(n):
        yield number


@agentic_function
def wait(seconds: float = 60.0) -> str:
    Path("waiting").touch()
    time.sleep(seconds)
    return "waited"


@agentic_function
def stubborn():
    Path("waiting").touch()
    while True:
        try:
            time.sleep(60)
        except BaseException:
            Path("interrupted").touch()


@agentic_function
def outer(text: str):
    return inner(text)


@agentic_function
def inner(text: str):
    try:
        return int(text)
    except ValueError as error:
        raise RuntimeError(f"no number: {text}") from error


@agentic_function
def leave(code: int):
    sys.exit(code)


@agentic_function
def where() -> str:
    return str(Path.cwd())


@agentic_function(name="nick")
def named() -> str:
    return "by another name"


@agentic_function
def ask(question: str, runtime: Runtime = None) -> str:
    runtime = Runtime(call=lambda content, model="m", response_format=None: "forty-two")
    return runtime.exec(question)


def answers_once(content, model="m", response_format=None):
    if content[-1]["text"] == "first":
        return "done"
    Path("waiting").touch()
    time.sleep(60)


@agentic_function
def talk():
    runtime = Runtime(call=answers_once)
    runtime.exec("first")
    return runtime.exec("second")


@agentic_function
def left_behind():
    threading.Thread(target=time.sleep, args=(60,)).start()
    time.sleep(60)


class Kind:
    @agentic_function
    def echo(self): ...

    @agentic_function
    def method(self): ...

    @staticmethod
    @agentic_function
    def static(x: int) -> int:
        return x

    @classmethod
    @agentic_function
    def made(cls, x: int) -> str:
        return f"{cls.__name__} {x}"


def plain(): ...
'''
