"""Where a call runs: the session, the frame it enters and the function around it, carried in one ContextVar.

`Scope` is immutable: entering a function sets a new one and leaving restores the old, so that threads and tasks that copied the context never see each
other's. All recording goes through here, and a failure to record is logged and counted, never raised into the user's function.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Generator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import msgspec

from openprogram.context.call import Call, Close, Frame, Reads, new_id
from openprogram.context.fragments import Form, Names
from openprogram.context.messages import Block, Message
from openprogram.context.rendering import Fragment, entry_line
from openprogram.context.view import Base, LateBase, View, ViewHistory, view_inside

if TYPE_CHECKING:
    from openprogram.store.base import Store

logger = logging.getLogger("openprogram.record")

failures = 0
"""How many writes could not be recorded since the process started."""


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """The frame that calls made here enter. ``caller`` is the function node around them, ``function`` its name.

    In the scope of a ``transcript`` nothing enters: a model's tool calls belong to the exec that made them, which enters as a whole.
    """

    store: Any  # a Store; msgspec reads annotations at run time, and the seam stands above this layer
    session: str
    view: View
    caller: str | None = None
    function: str | None = None
    render_range: dict[str, int] = {}
    transcript: bool = False


current: ContextVar[Scope | None] = ContextVar("openprogram_scope", default=None)
depth: ContextVar[dict[int, int]] = ContextVar("openprogram_depth", default={})  # noqa: B039 - never mutated, replaced on entry
_current_runtime: ContextVar[Any] = ContextVar("_current_runtime", default=None)
host_runtime: ContextVar[Any] = ContextVar("openprogram_host_runtime", default=None)
"""The runtime of the surroundings (a worker, ``openprogram.connect()``), for functions that declare one and are called outside any other.

It is not the ambient runtime: below a function that declares none there is still none.
"""
system_override: ContextVar[str | None] = ContextVar("openprogram_system", default=None)
entry: ContextVar[tuple[str, str] | None] = ContextVar("openprogram_entry", default=None)
"""``(node, frame)`` of a call that is written, and closed, by whoever asked for it. The first function to be called takes it instead of writing its own; the
scope around it is then that of its frame already (see `entered`).
"""


@contextlib.contextmanager
def recording() -> Generator[None]:
    """Turn a failure to record into a log line and a count, whatever the store raised: the user's function goes on."""
    global failures
    try:
        yield
    except RecursionError:
        raise  # no stack is left, so this is the user's own error; whoever closes a node tries again further up
    except Exception as error:
        failures += 1
        logger.warning("a call could not be recorded: %s", error)


_late: list[Callable[[], None]] = []
"""Ends of calls that found no stack left to be written; the next function to end, further up, writes them."""


def settle(close: Callable[[], None]) -> None:
    """Write the end of a call, and those that could not be written before; where the stack is used up, leave it to the next one."""
    ending = close
    try:
        ending()
        while _late:
            ending = _late.pop()
            ending()
    except RecursionError:
        _late.append(ending)


@contextlib.contextmanager
def _opening(scope: Scope, node: Call) -> Generator[None]:
    """`recording`; and a node that was written just before the stack was used up is closed as soon as there is some again."""
    try:
        with recording():
            yield
    except RecursionError as error:
        opened, raised = OpenCall(scope, node), error
        _late.append(lambda: opened.fail(raised) if scope.store.node(node.id) else None)
        raise


class History:
    """What one model call sees: a view up to k entries, with the render range of its function. Without a node (none could be written): all that is known."""

    def __init__(self, scope: Scope, node: Call | None) -> None:
        self._scope = scope
        self._call = node
        self._found: ViewHistory | None = None
        self.node: str | None = node.id if node else None

    @property
    def store(self) -> Any:
        """The store that holds the node."""
        return self._scope.store

    def messages(self) -> list[Message]:
        """The history, rendered."""
        return self._history().messages()

    def blocks(self) -> list[Block]:
        """See `ViewHistory.blocks`."""
        return self._history().blocks()

    def encoded(self, form: Form) -> list[bytes]:
        """See `ViewHistory.encoded`."""
        return self._history().encoded(form)

    def names(self, form: Form) -> Names:
        """See `ViewHistory.names`."""
        return self._history().names(form)

    def _history(self) -> ViewHistory:
        if self._found is None:
            self._found = ViewHistory(self._scope.view, self.node, self._upto(), self._scope.render_range)
        return self._found

    def _upto(self) -> int:
        node, store, view = self._call, self._scope.store, self._scope.view
        if node is None:
            with recording():
                return len(store.log(view.frame.id))
            return view.known
        if node.reads is not None and node.reads.upto == LATER:  # the store knows by now how much there was to read
            written = store.node(node.id)
            return written.reads.upto if written and written.reads else 0
        return node.reads.upto if node.reads else 0


class OpenCall:
    """A node that was opened and waits for its end; does nothing when it could not be recorded."""

    def __init__(self, scope: Scope | None, node: Call | None) -> None:
        self.scope = scope
        self.node = node
        self._started = time.monotonic()

    @property
    def id(self) -> str | None:
        """The node's id, or None when nothing is recorded."""
        return self.node.id if self.node else None

    def history(self) -> History | None:
        """The history that the node reads."""
        if self.scope is None or (self.node is not None and self.node.reads is None):
            return None
        return History(self.scope, self.node)

    def finish(self, status: Any, output: Any = None, *, enters: bool, exchanges: tuple[Any, ...] = (), metadata: dict[str, Any] | None = None) -> None:
        """Close the node."""
        if self.scope is None or self.node is None:
            return
        duration = round(time.monotonic() - self._started, 6)
        close = Close(
            id=self.node.id,
            status=status,
            output=output,
            exchanges=exchanges,
            metadata={"duration_s": duration, **(metadata or {})},
            ended_at=time.time(),
            enters=enters and not self.scope.transcript,
        )
        with recording():
            self._close(self.scope, close)

    def _close(self, scope: Scope, close: Close) -> None:
        post = getattr(scope.store, "post_finish", None)
        if post is None or scope.caller is None:  # the outermost call waits: behind it everything is committed
            node = scope.store.finish(close)
            if close.enters:
                scope.view.closed(node)
        else:
            post(close)

    def fail(self, error: BaseException, *, trace: str = "") -> None:
        """Close the node with what was raised; an error joins the log (so that the frame knows), a cancelled call does not."""
        cancelled = is_cancellation(error)
        details = {"type": type(error).__name__, "message": str(error), "trace": trace}
        is_code = self.node is not None and self.node.role == "code"
        self.finish("cancelled" if cancelled else "error", metadata={"error": details}, enters=is_code and not cancelled)


def is_cancellation(error: BaseException) -> bool:
    """Whether the error means that somebody ended the call, rather than that it failed."""
    names = {cls.__name__ for cls in type(error).__mro__}
    return isinstance(error, KeyboardInterrupt | GeneratorExit) or "CancelledError" in names


def open_call(role: Any, name: str, value: Any, *, metadata: dict[str, Any]) -> OpenCall:
    """Write a node into the current scope before its work begins."""
    scope = current.get()
    return OpenCall(None, None) if scope is None else open_call_in(scope, role, name, value, metadata=metadata)


def open_call_in(scope: Scope, role: Any, name: str, value: Any, *, metadata: dict[str, Any]) -> OpenCall:
    """`open_call` in a scope that need not be the current one."""
    node = Call(
        id=new_id(role),
        session=scope.session,
        role=role,
        name=name,
        frame=scope.view.frame.id,
        input=value,
        caller=scope.caller,
        metadata=metadata,
        started_at=time.time(),
    )
    with _opening(scope, node):
        return OpenCall(scope, _append(scope, node))
    return OpenCall(scope, None)


LATER = -1
"""``reads.upto`` of a node that was handed over to a store behind a connection, which fills it in."""


def _append(scope: Scope, node: Call, opens: Frame | None = None) -> Call:
    """Write a node. A store behind a connection takes one inside a function one-way: it writes in the order of sending, so what is asked behind sees it."""
    post = getattr(scope.store, "post_append", None)
    if post is None or scope.caller is None:
        return scope.store.append(node, opens=opens)
    post(node, opens)
    return msgspec.structs.replace(node, reads=Reads(node.frame, LATER)) if node.role == "llm" else node


def entered(store: Store, session: str, node: str, frame: str) -> Scope:
    """The scope to set, with `entry`, for a call that is written already: that of the frame it opened."""
    return Scope(store=store, session=session, view=_late_view(store, Frame(id=frame, session=session, owner=node)), caller=node)


def _late_view(store: Store, frame: Frame, parent: View | None = None, owner: Call | None = None) -> View:
    return View(store, frame, LateBase(store, frame, parent, owner))


def _take_entry(scope: Scope, name: str, render_range: dict[str, int]) -> Scope | None:
    if entry.get() is None:
        return None
    entry.set(None)
    return msgspec.structs.replace(scope, function=name, render_range=render_range)


def open_function(name: str, arguments: dict[str, Any], *, metadata: dict[str, Any], render_range: dict[str, int]) -> tuple[OpenCall, Scope | None]:
    """Write a function's node and open its frame; the scope is what its body runs in."""
    scope = current.get()
    if scope is None:
        return OpenCall(None, None), None
    if taken := _take_entry(scope, name, render_range):
        return OpenCall(None, None), taken  # whoever opened the node closes it
    node_id = new_id("code")
    frame = Frame(id=new_id("frame"), session=scope.session, parent=scope.view.frame.id, owner=node_id)
    node = Call(
        id=node_id,
        session=scope.session,
        role="code",
        name=name,
        frame=scope.view.frame.id,
        input=arguments,
        caller=scope.caller,
        metadata={**metadata, "frame": frame.id},
        started_at=time.time(),
    )
    with _opening(scope, node):
        node = _append(scope, node, frame)
        inner = Scope(
            store=scope.store,
            session=scope.session,
            view=_view_inside(scope, node, frame),
            caller=node.id,
            function=name,
            render_range=render_range,
        )
        return OpenCall(scope, node), inner
    return OpenCall(None, None), scope


def _view_inside(scope: Scope, node: Call, frame: Frame) -> View:
    if hasattr(scope.store, "post_append"):
        return _late_view(scope.store, frame, scope.view, node)
    return view_inside(scope.view, scope.store.frame(frame.id) or frame, node)


def open_hidden(name: str, arguments: dict[str, Any], *, metadata: dict[str, Any], render_range: dict[str, int], store: Store) -> tuple[OpenCall, Scope | None]:
    """Enter a function of which nothing may be written: its frame lives in ``store``, an empty one in memory, so that it sees what is around it."""
    outer = current.get()
    if outer is None:
        return OpenCall(None, None), None
    entry.set(None)
    with recording():
        info = store.create_session("hidden")
        node_id = new_id("code")
        frame = Frame(id=new_id("frame"), session=info.id, parent=info.frame, owner=node_id)
        node = Call(id=node_id, session=info.id, role="code", name=name, frame=info.frame, input=arguments, metadata=metadata, started_at=time.time())
        store.append(node, opens=frame)
        seen = len(outer.store.log(outer.view.frame.id))
        view = View(store, frame, Base([Fragment(node_id, entry_line(node))], parent=outer.view, upto=seen))
        return OpenCall(None, None), Scope(store=store, session=info.id, view=view, caller=node_id, function=name, render_range=render_range)
    return OpenCall(None, None), None
