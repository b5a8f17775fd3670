"""Work beside the body of a context, such as signs of life: the body ends when the work fails."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from typing import Any


@contextlib.asynccontextmanager
async def beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run ``work`` while the context is open. What it raises cancels the body, and comes out in place of that cancellation.

    Once the body has been left, what the work finds concerns nobody. A cancellation from elsewhere, and an error of the body, stay what
    they are.
    """
    body, inside, struck = asyncio.current_task(), True, False
    assert body is not None  # noqa: S101 - an async context manager runs in a task
    before = body.cancelling()
    working = asyncio.create_task(work)

    def ended(_: asyncio.Task[None]) -> None:
        nonlocal struck
        if inside and not working.cancelled() and working.exception() is not None:
            struck = True
            body.cancel()

    working.add_done_callback(ended)
    error: BaseException | None = None
    try:
        yield
    except BaseException as raised:
        error = raised
        raise
    finally:
        inside = False
        ours = struck and body.uncancel() <= before and (error is None or isinstance(error, asyncio.CancelledError))
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        if ours and (failure := working.exception()) is not None:
            raise failure from None
