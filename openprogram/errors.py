"""Every exception the library raises on purpose, in one tree.

    OpenProgramError
    ├── UsageError (ValueError)           the caller's mistake: target, argument, option
    │   ├── UnknownTargetError            no such function or file
    │   └── ArgumentError                 a missing or ill-typed argument
    ├── ConfigurationError                nothing to run on: provider, key, model
    │   ├── NoModelError                  no provider can be chosen, or its model is not installed
    │   └── UnknownModelError (ValueError)
    ├── LLMError                          a model request failed for good
    ├── DecisionError (ValueError)        the model never produced a valid pick
    ├── CheckFailedError (ValueError)     no result passed the check of validate_and_retry
    ├── UserDeclined                      a person was asked and would not answer
    ├── AskTimeout (TimeoutError)         nobody answered in time, or nobody is there
    ├── StructuredOutputError             response_format could not be honoured
    │   ├── StructuredOutputSchemaError       code invalid_schema
    │   ├── StructuredOutputUnsupportedError  code unsupported
    │   ├── StructuredOutputValidationError   code invalid_json, validation_failed, …
    │   └── StructuredOutputGenerationError   code refusal, incomplete
    └── StoreError                        the session store
        ├── StoreClosedError
        ├── StoreCorruptError             a row or a file cannot be read
        ├── StoreVersionError             written by a newer version
        └── UnknownSessionError (KeyError)

A user's mistake (UsageError, ConfigurationError) and a run that failed are different branches, so that a caller can tell them apart without reading text.
Every error pickles and copies with all its fields: each keeps them in ``__dict__`` and is rebuilt without calling ``__init__``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any


def _rebuild(cls: type[BaseException], args: tuple[Any, ...]) -> BaseException:
    return cls.__new__(cls, *args)


class OpenProgramError(Exception):
    """The root of every error that OpenProgram raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        # The default calls __init__ with self.args, which fails for keyword-only fields (a process pool then hangs on the reply).
        return _rebuild, (type(self), self.args), self.__dict__


class UsageError(OpenProgramError, ValueError):
    """The caller asked for something that cannot be: the message names it and the way out."""


class UnknownTargetError(UsageError):
    """A function, module or file that does not exist; ``near`` holds the names that come close."""

    def __init__(self, message: str, *, near: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.near = near


class ArgumentError(UsageError):
    """An argument that is missing, unknown or of another type; ``parameter`` names it."""

    def __init__(self, message: str, *, parameter: str) -> None:
        super().__init__(message)
        self.parameter = parameter


class ConfigurationError(OpenProgramError):
    """The program is right but there is nothing to run it on."""


class NoModelError(ConfigurationError):
    """No provider is configured, or the chosen model is not installed; the message says which command mends it."""


class UnknownModelError(ConfigurationError, ValueError):
    """A ``"provider:model"`` string that names no known provider or model."""


class Reason(StrEnum):
    """Why a model request failed; stable names for ``LLMError.reason``."""

    TIMEOUT = "timeout"
    CONNECTION = "connection"
    RATE_LIMIT = "rate_limit"
    QUOTA = "quota"
    OVERLOADED = "overloaded"
    SERVER = "server"
    AUTH = "auth"
    BAD_REQUEST = "bad_request"
    CONTEXT_LENGTH = "context_length"
    CONTENT_FILTER = "content_filter"
    INCOMPLETE = "incomplete"
    MAX_ITERATIONS = "max_iterations"
    PROTOCOL = "protocol"
    UNKNOWN = "unknown"


class LLMError(OpenProgramError):
    """A model request that failed for good.

    ``reason`` is one of `Reason`; ``retryable`` says whether the same request may succeed later; times are seconds.
    ``attempts`` counts the requests that were made.
    """

    def __init__(
        self,
        message: str,
        *,
        reason: Reason | str = Reason.UNKNOWN,
        retryable: bool = False,
        http_status: int | None = None,
        retry_after_s: float | None = None,
        attempts: int = 1,
        elapsed_s: float = 0.0,
        provider: str | None = None,
        model: str | None = None,
        transport_exhausted: bool = False,
    ) -> None:
        super().__init__(message)
        self.reason = Reason(reason)
        self.retryable = retryable
        self.http_status = http_status
        self.retry_after_s = retry_after_s
        self.attempts = attempts
        self.elapsed_s = elapsed_s
        self.provider = provider
        self.model = model
        self.transport_exhausted = transport_exhausted


class DecisionError(OpenProgramError, ValueError):
    """The model never produced a valid pick.

    ``kind`` is one of ``no_action``, ``unknown_call``, ``bad_args``, ``missing_required``, ``type_mismatch``, ``enum_violation``, ``invalid_json``,
    ``ambiguous``, ``incomplete``; ``path`` is the JSON path of the offending value, ``reply`` the head of the last reply, ``node_ids`` the model calls that
    were made.
    """

    def __init__(self, message: str, *, kind: str, path: str = "", reply: str = "", attempts: int = 1, node_ids: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.kind = kind
        self.path = path
        self.reply = reply
        self.attempts = attempts
        self.node_ids = node_ids


class CheckFailedError(OpenProgramError, ValueError):
    """No result passed the check of ``validate_and_retry``: ``result`` is the last one, ``problem`` what was wrong with it."""

    def __init__(self, message: str, *, result: Any, problem: str) -> None:
        super().__init__(message)
        self.result = result
        self.problem = problem


class UserDeclined(OpenProgramError):
    """A person was asked and would not answer."""


class AskTimeout(OpenProgramError, TimeoutError):
    """A question that nobody answered in time, or that nobody is there to answer; the message says which."""


class StructuredOutputError(OpenProgramError):
    """``response_format`` could not be honoured; ``code`` is stable, ``issues`` a short list of texts."""

    code = "structured_output"

    def __init__(self, message: str, *, code: str | None = None, issues: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code
        self.issues = issues


class StructuredOutputSchemaError(StructuredOutputError):
    """The schema or its envelope is invalid."""

    code = "invalid_schema"


class StructuredOutputUnsupportedError(StructuredOutputError):
    """This provider has no lossless way to produce the schema."""

    code = "unsupported"


class StructuredOutputValidationError(StructuredOutputError):
    """The model's answer is no JSON or does not fit the schema."""

    code = "validation_failed"


class StructuredOutputGenerationError(StructuredOutputError):
    """The provider refused or did not finish the answer."""

    code = "incomplete"


class StoreError(OpenProgramError):
    """The session store could not do what was asked."""


class StoreClosedError(StoreError):
    """The store was closed before this call."""


class StoreCorruptError(StoreError):
    """A file or a row that cannot be read; the message names it. Nothing was overwritten."""


class StoreVersionError(StoreError):
    """The store was written by a newer version of OpenProgram."""


class UnknownSessionError(StoreError, KeyError):
    """No session of that id is in the store."""

    def __str__(self) -> str:
        return Exception.__str__(self)
