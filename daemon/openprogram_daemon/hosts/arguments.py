"""Words as arguments: read in a worker, by the types that the function declares there, so that nothing is run or recorded for a call that cannot be made."""

from __future__ import annotations

import asyncio
from pathlib import Path

from openprogram_protocol.errors import ErrorCode
from openprogram_protocol.worker import WorkerArguments, WorkerArgumentsRead

from openprogram.errors import ArgumentError, UnknownTargetError, UsageError
from openprogram_daemon.errors import RefusedError
from openprogram_daemon.hosts.channel import LostError
from openprogram_daemon.hosts.generations import Failure
from openprogram_daemon.hosts.process import Worker
from openprogram_daemon.hosts.sources import relative

LIMIT_S = 60.0


async def read_by(worker: Worker, wanted: WorkerArguments, limit_s: float | None) -> WorkerArgumentsRead:
    """What the worker makes of the words. It is killed when it takes too long. Raises ArgumentError, UnknownTargetError, UsageError, RefusedError (LOAD)."""
    try:
        async with asyncio.timeout(LIMIT_S if limit_s is None else limit_s):
            read = await worker.arguments(wanted)
    except LostError:
        raise RefusedError(ErrorCode.LOAD, f"the process {await worker.ended} while it read the arguments") from None
    except BaseException as error:
        worker.kill()
        if isinstance(error, TimeoutError):
            raise RefusedError(ErrorCode.LOAD, "the types of the arguments took too long to evaluate") from None
        raise
    if read.error is None:
        return read
    message, kinds = str(read.error["message"]), read.error["kinds"]
    if "ArgumentError" in kinds:
        raise ArgumentError(message, parameter="")
    if "UnknownTargetError" in kinds:
        raise UnknownTargetError(message)
    if "UsageError" in kinds:
        raise UsageError(message)
    raise RefusedError(ErrorCode.LOAD, f"the types of the arguments cannot be read: {read.error['type']}: {message}", read.error)


def not_loaded(failure: Failure, root: Path) -> RefusedError:
    """A file that cannot be imported: a mistake in its text is the caller's, whatever else it raises is told with its traceback in ``data``."""
    error = failure.error
    if failure.is_in_the_text:
        return RefusedError(ErrorCode.USAGE, f"{relative(error['file'], root)}:{error['line']}: {error['message']}", error)
    return RefusedError(ErrorCode.LOAD, failure.shown(root), error)
