"""The page in a real browser: hostile trials do nothing, the keyboard does everything, thousands of trials cost little, and it is live."""

import asyncio
import contextlib

import chromium
import pytest
from hostile_state import TRIAL
from view_world import EVIL, demo, hostile_lines, hostile_site, line, made_site, many, served, step

from orchestrator.view.opened import OpenedFile
from orchestrator.view.site import Site, Start

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(chromium.find() is None, reason="there is no Chromium: apt-get install chromium-headless-shell"),
]
RUN = demo()


@pytest.fixture(scope="module")
def chrome():
    """One browser for all; each test has a tab of its own."""
    with asyncio.Runner() as runner:
        browser = chromium.browser(chromium.find())
        opened = runner.run(browser.__aenter__())
        try:
            yield runner, opened
        finally:
            runner.run(browser.__aexit__(None, None, None))


@pytest.fixture
def story(chrome):
    """Runs what a test does in the loop of the browser, and tells it how a tab is opened."""
    runner, opened = chrome
    return lambda work: runner.run(work(opened))


@contextlib.asynccontextmanager
async def looking(opened, site):
    """Yield a tab, and the address of the page that it can look at."""
    async with served(site) as address:
        page = await opened()
        yield page, address
        await page.call("Page.close")
        assert page.problems == []
        assert page.dialogs == []
        assert [url for url in page.requests if not url.startswith(address)] == []


def file_site(path):
    return Site(Start(), file=OpenedFile(path, path.parent))


ALIVE = (
    "document.querySelectorAll('script, img, iframe, object, embed, svg, style, form, base, meta[http-equiv]').length"
)


async def nothing_happened(page, *, texts):
    """Assert that the page holds what was written as text, and that it is nothing but text."""
    assert await page.run("typeof window.hacked") == "undefined"
    assert await page.run(ALIVE) == 1  # the page's own module
    assert await page.run("[...document.links].every(link => link.getAttribute('href').startsWith('#'))")
    every = "[...document.querySelectorAll('*')].flatMap(element => element.getAttributeNames())"
    assert not await page.run(f"{every}.some(name => name.startsWith('on') || name === 'srcdoc')")
    shown = await page.run("document.body.textContent")
    for text in texts:
        assert text in shown
    for character in "\x1b\u202e\u2066\u200b\x00\u3164":
        assert character not in shown
    assert await page.run("[...document.querySelectorAll('.unseen')].map(e => e.textContent).includes('U+202E')")


def test_a_hostile_trial_is_only_text(story, tmp_path):
    async def work(opened):
        async with looking(opened, await hostile_site(tmp_path)) as (page, address):
            trial = f"{address}#/trial/run-1/{str(TRIAL).replace('@', '%40').replace(':', '%3A')}"
            await page.go(trial)
            await page.until("document.querySelectorAll('.event').length === 10")
            await nothing_happened(
                page,
                texts=['<script>window.hacked="script"</script>', "javascript:alert(2)", "\\x1b", "test_add failed"],
            )
            # Everything that can be opened is opened, one event as it is.
            await page.run("document.querySelectorAll('details').forEach(e => { e.open = true; })")
            await page.run("document.querySelectorAll('.raw').forEach(e => e.click())")
            await page.until("document.querySelectorAll('.raws pre').length === 10")
            await nothing_happened(page, texts=["<svg onload=alert(1)>", "{{7*7}}"])
            await page.press("2")
            await page.until("document.querySelector('.changes .plus')")
            await nothing_happened(page, texts=["workspace/gone.txt", "[bold green]PASSED[/] :smile:"])
            await page.press("3")
            await page.until("document.querySelector('.output')")
            await nothing_happened(page, texts=["\\x1b[2J"])
            name = str(TRIAL).replace("@", "%40").replace(":", "%3A")
            await page.go(f"{address}#/compare/run-1/{name}/{name}")
            await page.until("document.querySelector('.pair')")
            await page.run("document.querySelectorAll('details').forEach(e => { e.open = true; })")
            await page.until("document.querySelectorAll('.pair .event').length")
            await nothing_happened(page, texts=["<iframe src="])
            await page.go(f"{address}#/runs")
            await page.until("document.querySelector('tbody tr')")

    story(work)


def test_the_page_refuses_what_its_own_code_would_do_wrong(story, tmp_path):
    async def work(opened):
        async with served(made_site(RUN)) as address:
            page = await opened()
            await page.go(address)
            await page.until("document.querySelector('tbody tr')")
            tried = await page.run(
                """(async () => {
                  const failed = [];
                  const attempt = async (name, make) => { try { await make(); } catch { failed.push(name); } };
                  await attempt("markup", () => { document.body.innerHTML += "<img src=x>"; });
                  await attempt("eval", () => eval("1"));
                  await attempt("elsewhere", () => fetch("http://127.0.0.1:1/"));
                  const image = new Image(); image.src = "data:image/gif;base64,R0lGODlhAQABAAAAACw=";
                  await attempt("image", () => image.decode());
                  const script = document.createElement("script");
                  await attempt("script", () => { script.textContent = "window.hacked = 1"; document.body.append(script); });
                  return [failed.join(), typeof window.hacked];
                })()"""
            )
            assert tried == ["markup,eval,elsewhere,image,script", "undefined"]

    story(work)


def test_everything_can_be_done_with_the_keyboard(story):
    async def work(opened):
        async with looking(opened, made_site(RUN)) as (page, address):
            await page.go(address)
            await page.until("document.querySelector('tbody tr')")
            await page.press("j")
            await page.press("Enter")
            await page.until("document.querySelector('.trials td a')")
            await page.press("/")
            await page.write("agent:careful result:failed")
            await page.until("document.querySelector('.counted').textContent.startsWith('6 of 180')")
            assert "agent%3Acareful" in await page.run("location.hash")
            assert await page.run("document.querySelector('.rates').textContent.includes('no rate')")
            await page.press("Escape")
            assert await page.run("document.querySelector('input.filter').value") == "agent:careful result:failed"
            await page.press("j")
            second = await page.run("document.querySelector('tr.current').dataset.trial")
            await page.press("Enter")
            await page.until(f"document.querySelector('h1').textContent === '{second}'")
            await page.press("]")
            await page.until(f"document.querySelector('h1').textContent !== '{second}'")
            await page.press("[")
            await page.until(f"document.querySelector('h1').textContent === '{second}'")
            await page.press("?")
            await page.until("document.querySelector('dialog[open]')")
            await page.press("Escape")
            await page.until("!document.querySelector('dialog[open]')")
            await page.press("Escape")
            await page.until("document.querySelector('.counted')?.textContent.startsWith('6 of 180')")
            await page.press("c")
            await page.press("G")
            await page.press("c")
            await page.until("document.querySelector('h1').textContent === 'Compare'")
            assert await page.run("getComputedStyle(document.getElementById('said')).display") == "none"
            await page.press("Escape")
            await page.until("document.querySelector('.counted')")
            await page.press("Escape")
            await page.until("document.querySelector('h1').textContent === 'Runs'")

    story(work)


def test_thousands_of_trials_are_a_few_rows_on_the_screen(story):
    async def work(opened):
        async with looking(opened, made_site(many())) as (page, address):
            await page.go(f"{address}#/run/big")
            await page.until("document.querySelector('.trials td a')")
            rows = "document.querySelectorAll('.trials tbody tr').length"
            assert await page.run(rows) < 90
            assert await page.run("document.querySelector('.trials').getAttribute('aria-rowcount')") == "5000"
            await page.press("G")
            await page.until("document.querySelector('tr.current')?.dataset.trial === 'task-49@a1:50'")
            assert await page.run(rows) < 90
            await page.run("document.querySelector('.sort').click()")  # result, the last of them first
            await page.until("document.querySelector('[aria-sort=descending]')")
            await page.until("document.querySelector('.trials td .result.failed')")
            await page.run(
                "[...document.querySelectorAll('.facet')].find(e => e.textContent.startsWith('passed')).click()"
            )
            await page.until("document.querySelector('.counted').textContent.startsWith('1,667 of 5,000')")
            assert await page.run("document.querySelector('.facet[aria-pressed=true]').textContent") == "passed1,667"

    story(work)


def test_a_transcript_grows_without_a_reload(story, tmp_path):
    async def work(opened):
        path = tmp_path / "t.jsonl"
        path.write_bytes(line(0, "launch") + b"".join(step(1, "the first words")))
        async with looking(opened, file_site(path)) as (page, address):
            await page.go(address)
            await page.until("document.querySelectorAll('.event').length === 5")
            await page.run("window.same = true")
            await page.until("document.querySelector('#pulse').dataset.state === 'live'")
            with path.open("ab") as file:
                file.write(b"".join(step(5, "the second words")))
            await page.until("document.querySelectorAll('.event').length === 9")
            assert await page.run("window.same && document.body.textContent.includes('the second words')")
            with path.open("ab") as file:
                file.write(line(9, "seal"))
            await page.until("document.querySelector('#pulse').dataset.state === ''")

    story(work)


def test_a_giant_transcript_is_shown_piece_by_piece(story, tmp_path):
    async def work(opened):
        path = tmp_path / "giant.jsonl"
        text = "x" * 99 + "\n"
        with path.open("wb") as file:
            file.write(line(0, "launch") + b"".join(step(1, "a", result=text * 3000)))
            for n in range(1, 1000):
                file.write(b"".join(step(1 + 4 * n, f"words {n}", result=text * 20)))
        async with looking(opened, file_site(path)) as (page, address):
            await page.go(address)
            await page.until("document.querySelectorAll('.event').length >= 60")
            assert await page.run("document.body.textContent.length") < 200_000
            assert await page.run("document.querySelector('.bar').textContent.includes('4,001 events')")
            click = "[...document.querySelectorAll('.event')][4].querySelector('.foot button').click()"
            await page.run(click)  # the rest of what came
            await page.run(click)  # the next piece
            await page.until(
                "document.querySelectorAll('.event')[4].querySelector('pre').textContent.length === 204_000"
            )
            await page.press("G")
            await page.until("document.body.textContent.includes('words 999')")
            assert await page.run("document.querySelectorAll('.event').length") <= 60
            await page.press("/")
            await page.write("words 500")
            await page.until("document.querySelectorAll('.event').length === 1")

    story(work)


def test_no_page_is_wider_than_its_window_and_colours_follow_the_person(story, tmp_path):
    async def work(opened):
        path = tmp_path / "t.jsonl"
        path.write_bytes(b"".join(hostile_lines()))
        async with looking(opened, file_site(path)) as (page, address):
            await page.go(address)
            await page.until("document.querySelectorAll('.event').length === 10")
            for width, dark in ((380, False), (380, True), (1440, False), (1440, True)):
                await page.look(width, 800, dark)
                assert await page.run("document.documentElement.scrollWidth") <= width
                ground = await page.run("getComputedStyle(document.body).backgroundColor")
                assert (ground == "rgb(20, 21, 23)") == dark
            assert EVIL[:30] in await page.run("document.body.textContent")

    story(work)
