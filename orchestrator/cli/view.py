"""``orchestrate view``: the store, or one trajectory, as a web page that only reads."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.options import StoreOption, run_async, settings_from

if TYPE_CHECKING:
    from orchestrator.settings import Settings


def add_to(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(view)


def view(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN|FILE]", help="Begin with this run; or show the traces of a file alone.", show_default=False
        ),
    ] = None,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0: any free one.")] = 0,
    no_open: Annotated[bool, typer.Option("--no-open", help="Print the address, open no browser.")] = False,
    store: StoreOption = None,
) -> None:
    """Look at runs, trials and transcripts in a browser.

    The page only reads, is served to this machine alone, and follows runs while they run. Ctrl-C ends it.
    """
    with opener(wanted=not no_open) as opens:
        if what is not None and Path(what).is_file():
            run_async(_file(Path(what), port, opens))
        else:
            run_async(_store(what, port, settings_from(store=store), opens))


async def _store(text: str | None, port: int, settings: Settings, opens: Callable[[str], None]) -> None:
    from orchestrator import wiring
    from orchestrator.report.select import resolve_run
    from orchestrator.view.server import serve
    from orchestrator.view.site import Start, store_site

    store = wiring.object_store(settings.store)
    run = None if text is None else await resolve_run(store, text)
    start = Start(store=settings.store, run=run)
    await serve(store_site(start, store, wiring.bundle_source(store, settings.cache), settings), port, _told(opens))


async def _file(path: Path, port: int, opens: Callable[[str], None]) -> None:
    import asyncio

    from orchestrator.view.opened import OpenedFile
    from orchestrator.view.server import serve
    from orchestrator.view.site import Site, Start

    with tempfile.TemporaryDirectory(prefix="orchestrate-view-") as folder:
        file = await asyncio.to_thread(OpenedFile, path, Path(folder))
        await serve(Site(Start(), file=file), port, _told(opens))


def _told(opens: Callable[[str], None]) -> Callable[[str], None]:
    def ready(address: str) -> None:
        print(f"{address}\nwhoever has this address can read what is shown; Ctrl-C ends it", flush=True)
        opens(address)

    return ready


@contextlib.contextmanager
def opener(*, wanted: bool) -> Iterator[Callable[[str], None]]:
    """Yield what opens an address in the person's browser, by a file that only they can read: every user of a machine sees the arguments
    of its processes.
    """
    with contextlib.ExitStack() as stack:

        def opens(address: str) -> None:
            import webbrowser

            try:
                browser = webbrowser.get()
            except webbrowser.Error:
                return
            # A browser in the terminal would take it over.
            if isinstance(browser, webbrowser.GenericBrowser) and not isinstance(browser, webbrowser.BackgroundBrowser):
                return
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="orchestrate-view-")))
            page = folder / "open.html"
            with os.fdopen(os.open(page, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(
                    f'<!doctype html><meta http-equiv="refresh" content="0;url={escape(address)}"><a href="{escape(address)}">open</a>\n'
                )
            browser.open(page.as_uri())

        yield opens if wanted else (lambda _address: None)
