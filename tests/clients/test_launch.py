"""Finding and starting a daemon: one for any number of clients, whatever an earlier one left, and a clear word where there can be none."""

from __future__ import annotations

import os
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from openprogram_clients import DaemonError, NotRunningError, StartError, UnsafePathError, connect, launch, places
from openprogram_clients.fingerprint import fingerprint
from openprogram_protocol import paths
from openprogram_protocol.rpc import PROTOCOL

from tests.clients.support import WAIT_S, Home, python
from tests.daemon.support import lives

STARTS = """
import sys
import openprogram_clients
sys.stdin.read(1)
client = openprogram_clients.connect(sys.argv[1], trust=True)
print(client.status().pid, client.run("add", a=1, b=2), flush=True)
"""


def test_p07_ten_starts_at_the_same_moment_give_one_daemon(home: Home, work: Path) -> None:
    """p07: ten processes that look for a daemon at once find the same one, each can use it, and it outlives them."""
    processes = [python(STARTS, str(work)) for _ in range(10)]
    try:
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("x")
        for process in processes:
            assert process.stdin is not None
            process.stdin.flush()
        said = [process.communicate(timeout=90)[0].split() for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert said == [[str(home.daemon()), "3"]] * 10
    assert connect(start=False).status().pid == home.daemon()


def test_threads_that_start_at_once_get_one_daemon(home: Home, work: Path) -> None:
    """The same for ten threads, each with a client of its own."""
    barrier = threading.Barrier(10)

    def begin(_: int) -> int:
        barrier.wait()
        with connect(work) as client:
            return client.status().pid

    with ThreadPoolExecutor(10) as pool:
        assert set(pool.map(begin, range(10))) == {home.daemon()}


def left_by(pid: int, start_time: str, place: str) -> places.DaemonStatus:
    return places.DaemonStatus(pid=pid, start_time=start_time, protocol=PROTOCOL, version="", fingerprint="", socket=place, epoch="e")


@pytest.mark.parametrize("left", ["nothing", "socket", "garbage", "dead pid", "reused pid", "another's socket"])
def test_p07_what_a_dead_daemon_left_is_no_obstacle(home: Home, left: str, tmp_path: Path) -> None:
    """p07: whatever lies about, the client neither trusts it nor asks anybody to clean up."""
    home.path.mkdir(exist_ok=True)
    if left == "socket":
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(str(places.socket_path()))
    elif left == "garbage":
        places.status_file().write_bytes(b"\x00\xff{]")
    elif left == "dead pid":
        places.write_status(left_by(999_999_999, "1", "/nowhere"))
    elif left == "reused pid":
        places.write_status(left_by(os.getpid(), "before this process began", "/nowhere"))
    elif left == "another's socket":
        places.write_status(left_by(os.getpid(), places.process_start(os.getpid()), str(tmp_path / "nobody.sock")))
    with pytest.raises(NotRunningError, match="openprogram daemon start"):
        connect(start=False)
    with connect() as client:
        assert client.status().pid == home.daemon()


def test_a_killed_daemon_is_replaced_by_the_next_client(home: Home) -> None:
    """After a crash socket and status file are there and nobody listens: the next client has a new daemon."""
    with connect() as client:
        first = client.status().pid
    home.kill()
    assert places.status_file().exists()
    with connect() as client:
        assert client.status().pid == home.daemon() != first


def test_long_paths_and_odd_names(home: Home, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A socket's path must be short; a home's need not be, nor that of XDG_RUNTIME_DIR. Another TMPDIR or XDG_RUNTIME_DIR finds the same daemon."""
    long = tmp_path / "é漢 and spaces " / ("x" * 100) / ("y" * 100)
    long.mkdir(parents=True, mode=0o700)
    monkeypatch.setenv("OPENPROGRAM_HOME", str(long / "home"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(long))
    there = Home(long / "home")
    try:
        with connect() as client:
            assert len(os.fsencode(client.status().socket)) < places.LONGEST_SOCKET_PATH
            pid = client.status().pid
        short = tmp_path / "r"
        short.mkdir(mode=0o700)
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(short))
        monkeypatch.setenv("TMPDIR", str(short))
        with connect(start=False) as client:
            assert client.status().pid == pid
    finally:
        there.end()


def test_a_runtime_folder_that_others_may_enter_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Only a folder that is the user's own and closed to others holds a socket; a link to one is none."""
    folder = Path(tmp_path.anchor, "tmp", f"r{os.getpid()}")
    folder.mkdir(mode=0o700)
    link = folder.with_name(f"{folder.name}l")
    link.symlink_to(folder)
    try:
        used: list[bool] = []
        for given, mode in ((folder, 0o700), (folder, 0o755), (link, 0o700), (folder / "none", 0o700)):
            folder.chmod(mode)
            monkeypatch.setenv("XDG_RUNTIME_DIR", str(given))
            used.append(places.socket_path().parent == given)
        assert used == [True, False, False, False]
    finally:
        link.unlink()
        folder.rmdir()


def test_the_daemon_inherits_nothing_of_its_clients(home: Home, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither keys nor proxies nor search paths, neither the terminal nor the folder, in which a file of the right name is not imported."""
    for name in ("SOME_API_KEY", "PYTHONPATH", "HTTPS_PROXY", "LD_LIBRARY_PATH"):
        monkeypatch.setenv(name, "of a client")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "openprogram_daemon.py").write_text("raise SystemExit(9)")
    (tmp_path / "msgspec.py").write_text("raise SystemExit(9)")
    with connect() as client:
        pid = client.status().pid
    given: dict[str, str] = {}
    for entry in Path(f"/proc/{pid}/environ").read_text().split("\0"):
        name, _, given[name] = entry.partition("=")
    del given[""]
    assert [name for name in given if name not in launch.KEPT and not name.startswith(launch.KEPT_PREFIXES)] == []
    assert given["OPENPROGRAM_HOME"] == str(home.path)
    assert os.getsid(pid) == os.getpgid(pid) == pid
    assert Path(f"/proc/{pid}/cwd").readlink() == Path("/")
    assert {Path(f"/proc/{pid}/fd/{number}").readlink().name for number in (0, 1, 2)} == {"null", "daemon.log"}


def test_a_start_that_fails_says_why(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error ends with what this daemon printed, and only this one; mended, the next call starts one."""
    home.path.mkdir(exist_ok=True)
    places.log_file().write_text("an old complaint\n")
    monkeypatch.setenv("OPENPROGRAM_IDLE_S", "soon")
    with pytest.raises(StartError, match="could not start: it ended with code 1") as caught:
        connect()
    assert "OPENPROGRAM_IDLE_S='soon' is no number of seconds" in str(caught.value).splitlines()[-1]
    assert "old complaint" not in str(caught.value)
    monkeypatch.delenv("OPENPROGRAM_IDLE_S")
    paths.store_file().write_bytes(b"this is no database, whatever its name says" * 100)
    with pytest.raises(StartError) as caught:
        connect()
    assert str(paths.store_file()) in str(caught.value)
    paths.store_file().unlink()
    connect().close()


def test_a_home_that_cannot_be_used_is_named(home: Home, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A home below a file, or one whose lock cannot be opened, is an error with the way out."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("OPENPROGRAM_HOME", str(tmp_path / "file" / "home"))
    with pytest.raises(DaemonError, match="cannot be made: Not a directory; set OPENPROGRAM_HOME"):
        connect()
    monkeypatch.setenv("OPENPROGRAM_HOME", str(tmp_path / "home"))
    (tmp_path / "home" / "start.lock").mkdir(parents=True)
    with pytest.raises(DaemonError, match=r"start\.lock cannot be opened: Is a directory; set OPENPROGRAM_HOME"):
        connect()


AS_NOBODY = """
import os, sys
from openprogram_clients import aclient, client, launch, places
os.setgid(65534)
os.setuid(65534)
try:
    launch.open_daemon()
except Exception as error:
    print(type(error).__name__, error)
"""

LISTENS_AS_NOBODY = """
import os, socket, sys
with socket.socket(socket.AF_UNIX) as sock:
    sock.bind(sys.argv[1])
    os.setgid(65534)
    os.setuid(65534)
    sock.listen()
    print("listens", flush=True)
    sys.stdin.read()
"""

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="becoming another user takes root")


@needs_root
def test_a_home_of_another_user_is_named(home: Home, tmp_path: Path) -> None:
    """Whoever may not write to the home is told so, with the way out."""
    home.path.mkdir(exist_ok=True)
    runtime = Path(tmp_path.anchor, "tmp", f"n{os.getpid()}")
    runtime.mkdir(mode=0o700)
    os.chown(runtime, 65534, 65534)
    parent = Path(tmp_path.anchor, "tmp", f"h{os.getpid()}")
    parent.mkdir(mode=0o755)
    try:
        environment = {**os.environ, "OPENPROGRAM_HOME": str(parent / "home"), "XDG_RUNTIME_DIR": str(runtime)}
        said = python(AS_NOBODY, env=environment).communicate(timeout=WAIT_S)[0]
        assert said.startswith(f"DaemonError the state directory {parent / 'home'} cannot be made: Permission denied")
        said = python(AS_NOBODY, env={**environment, "OPENPROGRAM_HOME": str(parent)}).communicate(timeout=WAIT_S)[0]
        assert said.startswith(f"DaemonError {parent / 'start.lock'} cannot be opened: Permission denied")
    finally:
        runtime.rmdir()
        parent.rmdir()


@needs_root
def test_p05_another_users_socket_and_status_file_are_refused(home: Home) -> None:
    """p05: what another user put at the place of the socket, or of the status file, is named and not used."""
    home.path.mkdir(exist_ok=True)
    with python(LISTENS_AS_NOBODY, str(places.socket_path())) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "listens\n"
        with pytest.raises(UnsafePathError, match=r"another user \(uid 65534\) listens at"):
            connect()
        other.communicate()
    places.write_status(left_by(1, "1", "/nowhere"))
    os.chown(places.status_file(), 65534, 65534)
    with pytest.raises(UnsafePathError, match=r"daemon\.json belongs to another user \(uid 65534\)"):
        connect()
    places.status_file().unlink()
    assert home.daemons() == []


def test_a_daemon_that_does_not_answer_is_named(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that accepts and is silent is an error after a while, not silence."""
    home.path.mkdir(exist_ok=True)
    monkeypatch.setattr(launch, "START_S", 0.2)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(places.socket_path()))
        silent.listen()
        with pytest.raises(DaemonError, match="accepts connections and does not answer; `openprogram daemon restart`"):
            connect()


def test_a_suspended_daemon_is_waited_for(home: Home) -> None:
    """A daemon that was suspended answers once it goes on: nothing is started beside it."""
    with connect() as client:
        pid = client.status().pid
    os.kill(pid, signal.SIGSTOP)
    try:
        with ThreadPoolExecutor(1) as pool:
            waits = pool.submit(connect)
            with pytest.raises(TimeoutError):
                waits.result(0.3)
            os.kill(pid, signal.SIGCONT)
            with waits.result(WAIT_S) as client:
                assert client.status().pid == pid == home.daemon()
    finally:
        os.kill(pid, signal.SIGCONT)


def test_one_daemon_for_each_home(home: Home, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A named instance is another home: its own daemon, store and runs; a home reached through a link is the same one."""
    with connect() as client:
        first = client.status().pid
    link = tmp_path / "link"
    link.symlink_to(home.path)
    monkeypatch.setenv("OPENPROGRAM_HOME", str(link))
    with connect(start=False) as client:
        assert client.status().pid == first
    other = Home(tmp_path / "other")
    monkeypatch.setenv("OPENPROGRAM_HOME", str(other.path))
    try:
        with connect() as client:
            assert client.status().pid == other.daemon() != first
    finally:
        other.end()
    assert lives(first)


def test_a_root_must_be_a_folder(tmp_path: Path) -> None:
    """The mistake is named before anything is started."""
    with pytest.raises(NotADirectoryError, match="is no folder"):
        connect(tmp_path / "none")


def test_the_fingerprint_is_the_same_in_every_process() -> None:
    """It depends on the installed files only."""
    program = "from openprogram_clients.fingerprint import fingerprint; print(fingerprint())"
    assert python(program).communicate(timeout=WAIT_S)[0].strip() == fingerprint()
