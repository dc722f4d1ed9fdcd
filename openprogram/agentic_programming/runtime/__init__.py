"""`Runtime`: the one door to a model.

`exec` sends one turn with the history that the session DAG gives it and returns the reply; with ``choices`` the reply must pick an option and the result of
the pick is returned. Sync calls run on one background loop; picked functions run where the caller is, so that a function option may do what its author's code
may do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from openprogram.agentic_programming.runtime.asks import Asks
from openprogram.agentic_programming.runtime.content import blocks_of, question_of
from openprogram.agentic_programming.runtime.offer import Offer
from openprogram.context.call import new_id
from openprogram.context.scope import system_override
from openprogram.providers.base import ModelSettings, Provider
from openprogram.providers.registry import chosen_model, is_known, make_provider, split_model

if TYPE_CHECKING:
    from openprogram.agentic_programming.agent_loop import Tooling
    from openprogram.agentic_programming.decision.check import Pick
    from openprogram.agentic_programming.decision.options import Menu
    from openprogram.agentic_programming.runtime.retry import RetryInfo
    from openprogram.agentic_programming.runtime.turn import Plan, Reply

__all__ = ["Runtime", "create_runtime"]


class Runtime(Asks):
    """A model to call. ``call`` is your own function ``fn(content, model, response_format)``; ``model`` is ``"provider:model"`` otherwise.

    ``max_retries`` counts attempts per model request (None: OPENPROGRAM_MAX_RETRIES, else 6). ``provider`` is any `Provider`, for tests and embedders. Raises
    UnknownModelError (a ValueError) for an unknown ``"provider:model"``. A subclass may override ``_call(content, model, response_format)``, or
    ``_async_call``, instead.
    """

    def __init__(
        self,
        call: Callable[..., Any] | None = None,
        model: str = "default",
        max_retries: int | None = None,
        *,
        provider: Provider | None = None,
        model_settings: ModelSettings | Mapping[str, Any] | None = None,
    ) -> None:
        from openprogram.agentic_programming.runtime.retry import attempts_from_environment, check_attempts

        self.model = model
        self.max_retries = attempts_from_environment() if max_retries is None else check_attempts(max_retries)
        self.system: str | None = None
        self.session_id = f"op-{new_id('x')[2:]}"
        self.on_stream: Callable[[dict[str, Any]], object] | None = None
        self.last_usage: dict[str, Any] | None = None
        self.model_settings = _settings(model_settings)
        self._closed = False
        self._provider = provider or self._configured(call)
        self._awaited = self._provider if provider or call is not None else self._configured_for_await()

    def _configured(self, call: Callable[..., Any] | None) -> Provider:
        from openprogram.providers.callable import CallableProvider, MissingProvider

        if call is not None:
            return CallableProvider(call)
        if type(self)._call is not Runtime._call:
            return CallableProvider(self._call, with_history=False)
        if type(self)._async_call is not Runtime._async_call:
            return CallableProvider(self._async_call, with_history=False)
        if ":" in self.model:
            return make_provider(split_model(self.model)[0])
        return MissingProvider(self.model)

    def _configured_for_await(self) -> Provider:
        """What the async methods call: an overridden `_async_call` if there is one."""
        if type(self)._async_call is Runtime._async_call or type(self)._call is Runtime._call:
            return self._provider
        from openprogram.providers.callable import CallableProvider

        return CallableProvider(self._async_call, with_history=False)

    def _call(self, content: list[dict[str, Any]], model: str = "default", response_format: dict[str, Any] | None = None) -> Any:
        """Answer one turn's content blocks with text. Override this to bring your own model."""
        raise NotImplementedError("override _call(content, model, response_format), or pass call= or a 'provider:model'")

    async def _async_call(self, content: list[dict[str, Any]], model: str = "default", response_format: dict[str, Any] | None = None) -> Any:
        """`_call` for an async model. Where both are overridden, the async methods use this one and the others `_call`."""
        raise NotImplementedError("override _async_call(content, model, response_format), or pass call= or a 'provider:model'")

    def history(self) -> list[dict[str, Any]]:
        """What came before the turn that an overridden `_call` is answering: flat content blocks, each text block with its ``role``. Empty anywhere else."""
        from openprogram.providers.callable import answering, past_content

        request = answering.get()
        return [] if request is None else past_content(request)

    def exec(
        self,
        content: Any,
        *,
        choices: Any = None,
        context: Mapping[str, Any] | None = None,
        model: str | None = None,
        tools: Iterable[Any] | None = None,
        toolset: str | Iterable[str] | None = None,
        tools_source: str | None = None,
        tools_allow: Iterable[str] | None = None,
        tools_deny: Iterable[str] | None = None,
        tool_choice: str | dict[str, Any] = "auto",
        parallel_tool_calls: bool = True,
        max_iterations: int = 20,
        timeout_s: float | None = None,
        on_retry: Callable[[RetryInfo], object] | None = None,
        model_settings: ModelSettings | Mapping[str, Any] | None = None,
    ) -> Any:
        """One turn: the reply's text, or with ``choices`` the result of the option that the reply picks.

        ``content`` is a text or a list of content blocks. ``timeout_s`` bounds the whole call in seconds. ``context`` fills the parameters of a picked
        function that the model does not see.

        ``tools`` are functions, names of registered ones, ``{"spec", "execute"}`` or objects with these; ``toolset`` names sets of registered tools (``full``,
        ``none``, ``default`` or your own). Without either the model is offered what the program registered. ``tools_source``, ``tools_allow`` and
        ``tools_deny`` filter them. ``tool_choice`` (``auto``, ``required``, ``none`` or ``{"type": "function", "name": …}``) is about the first request;
        ``max_iterations`` counts requests. Raises LLMError, DecisionError, RuntimeError after `close`, ValueError or TypeError for bad content or options.
        """
        offer = Offer(tools, toolset, tools_source, tools_allow, tools_deny, tool_choice, parallel_tool_calls, max_iterations)
        turn = self._turn_of(content, model, timeout_s, on_retry, model_settings, offer)
        if choices is None:
            return self._sync(turn()).text
        from openprogram.agentic_programming.runtime import picking

        menu, question = picking.menu_and_question(choices, content, context)
        pick = self._settle(self._sync(turn(menu)), menu, question, 1, turn)
        return picking.result(pick, runtime=self, context=context)

    async def async_exec(
        self,
        content: Any,
        *,
        choices: Any = None,
        context: Mapping[str, Any] | None = None,
        model: str | None = None,
        tools: Iterable[Any] | None = None,
        toolset: str | Iterable[str] | None = None,
        tools_source: str | None = None,
        tools_allow: Iterable[str] | None = None,
        tools_deny: Iterable[str] | None = None,
        tool_choice: str | dict[str, Any] = "auto",
        parallel_tool_calls: bool = True,
        max_iterations: int = 20,
        timeout_s: float | None = None,
        on_retry: Callable[[RetryInfo], object] | None = None,
        model_settings: ModelSettings | Mapping[str, Any] | None = None,
    ) -> Any:
        """`exec` on the caller's event loop; cancelling the task ends the request."""
        offer = Offer(tools, toolset, tools_source, tools_allow, tools_deny, tool_choice, parallel_tool_calls, max_iterations)
        turn = self._turn_of(content, model, timeout_s, on_retry, model_settings, offer, provider=self._awaited)
        if choices is None:
            return (await self._run(turn())).text
        from openprogram.agentic_programming.runtime import picking

        menu, question = picking.menu_and_question(choices, content, context)
        pick = await self._asettle(await self._run(turn(menu)), menu, question, 1, turn)
        return await picking.aresult(pick, runtime=self, context=context)

    def decide(self, prompt: Any, menu: Menu, *, context: Mapping[str, Any] | None = None, max_retries: int = 1) -> Any:
        """What `decision.make` does on this runtime."""
        from openprogram.agentic_programming.runtime import picking

        turn = self._turn_of(prompt, None, None, None, None)
        pick = self._settle(self._sync(turn(menu, closing=True)), menu, question_of(prompt), max_retries, turn)
        return picking.result(pick, runtime=self, context=context)

    async def adecide(self, prompt: Any, menu: Menu, *, context: Mapping[str, Any] | None = None, max_retries: int = 1) -> Any:
        """What `decision.amake` does on this runtime."""
        from openprogram.agentic_programming.runtime import picking

        turn = self._turn_of(prompt, None, None, None, None, provider=self._awaited)
        pick = await self._asettle(await self._run(turn(menu, closing=True)), menu, question_of(prompt), max_retries, turn)
        return await picking.aresult(pick, runtime=self, context=context)

    def settle(self, reply: str, menu: Menu, *, max_retries: int = 1) -> Pick:
        """What `decision.parse_args` does on this runtime: the pick of a reply that was made already, asked again while it holds none."""
        from openprogram.agentic_programming.runtime import picking

        return self._settle(picking.reply_of(reply, menu), menu, "", max_retries, self._turn_of("", None, None, None, None))

    def _usual_model(self) -> str:
        """The model that this runtime was made with; of a provider that chooses it itself, the one that it chose."""
        return getattr(self._provider, "model", self.model) if self.model == "default" else self.model

    def _turn_of(
        self,
        content: Any,
        model: str | None,
        timeout_s: float | None,
        on_retry: Any,
        settings: Any,
        offer: Offer | None = None,
        *,
        provider: Provider | None = None,
    ) -> Callable[..., Plan]:
        """A maker of plans that share one call's settings: the first turn with its content, re-asks with another text."""
        if self._closed:
            raise RuntimeError("this Runtime is closed; make a new one")
        from openprogram.agentic_programming.decision.menu import DECISION_FINISH_INSTRUCTION
        from openprogram.agentic_programming.runtime.turn import Plan

        blocks, system_blocks = blocks_of(content)
        override = system_override.get()
        used = _bare(model or self._usual_model())
        tooling = None if offer is None else self._tooling(offer, used)
        parts = [*([text] if (text := override if override is not None else self.system) else []), *system_blocks]

        def plan(menu: Menu | None = None, *, closing: bool = False, text: str | None = None) -> Plan:
            turn = blocks if text is None else [{"type": "text", "text": text}]
            if menu is not None and not closing:
                turn = [*turn, {"type": "text", "text": DECISION_FINISH_INSTRUCTION}]
            return Plan(
                provider=provider or self._provider,
                model=used,
                blocks=turn,
                system="\n\n".join(parts) or None,
                settings=_settings(settings, self.model_settings),
                max_attempts=self.max_retries,
                timeout_s=timeout_s if timeout_s is not None else _timeout_from_environment(),
                on_retry=on_retry,
                on_stream=self.on_stream,
                menu=menu,
                closing=closing,
                session_id=self.session_id,
                tooling=tooling,
            )

        return plan

    def _tooling(self, offer: Offer, model: str) -> Tooling | None:
        has_tools = self._provider.profile(model).tools
        if offer.is_plain and not has_tools:
            return None
        from openprogram.agentic_programming.runtime.tools import tooling_for

        return tooling_for(self, offer, has_tools=has_tools)

    def _sync(self, plan: Plan) -> Reply:
        from openprogram.agentic_programming.runtime.loop import run

        return run(lambda: self._run(plan))

    async def _run(self, plan: Plan) -> Reply:
        from openprogram.agentic_programming.runtime.turn import Turn

        reply = await Turn(plan).run()
        self.last_usage = reply.usage.as_dict()
        return reply

    def _settle(self, reply: Reply, menu: Menu, question: str, retries: int, turn: Callable[..., Plan]) -> Pick:
        """The pick of a reply, asked again while it holds none and ``retries`` are left."""
        from openprogram.agentic_programming.runtime.picking import next_question

        replies = [reply]
        while (pick := replies[-1].pick) is None:
            text = next_question(replies, question, retries)
            replies.append(self._sync(turn(menu, closing=True, text=text)))
        return pick

    async def _asettle(self, reply: Reply, menu: Menu, question: str, retries: int, turn: Callable[..., Plan]) -> Pick:
        from openprogram.agentic_programming.runtime.picking import next_question

        replies = [reply]
        while (pick := replies[-1].pick) is None:
            text = next_question(replies, question, retries)
            replies.append(await self._run(turn(menu, closing=True, text=text)))
        return pick

    def close(self) -> None:
        """Release what the provider holds; `exec` then raises RuntimeError. May be called twice."""
        if self._closed:
            return
        self._closed = True
        from openprogram.agentic_programming.runtime.loop import run

        run(self._provider.aclose)  # pyright: ignore[reportArgumentType] - a coroutine function, as the seam says

    def __reduce__(self) -> Any:
        raise TypeError("a Runtime holds connections, so it cannot be copied or pickled; pass it on as it is, or make another with the same arguments")

    def __enter__(self) -> Runtime:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _bare(model: str) -> str:
    provider, _, name = model.partition(":")
    return name if name and is_known(provider) else model


def _settings(given: Any, base: ModelSettings | None = None) -> ModelSettings:
    base = base or ModelSettings()
    if given is None:
        return base
    if isinstance(given, ModelSettings):
        return given
    import msgspec

    unknown = given.keys() - set(ModelSettings.__struct_fields__)
    if unknown:
        raise ValueError(f"model_settings does not know {', '.join(sorted(unknown))}; allowed: {', '.join(ModelSettings.__struct_fields__)}")
    return msgspec.structs.replace(base, **given)


def _timeout_from_environment() -> float | None:
    import os

    return float(os.environ.get("OPENPROGRAM_EXEC_TIMEOUT_S") or 0) or None


def create_runtime(provider: str | None = None, model: str | None = None) -> Runtime:
    """A Runtime on what is configured: the arguments, else OPENPROGRAM_PROVIDER and OPENPROGRAM_MODEL, else ``[tool.openprogram] model``, else the local model.

    Raises NoModelError, which says what to install or set, and UnknownModelError.
    """
    return Runtime(model=chosen_model(provider, model))
