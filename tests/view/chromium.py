"""A headless Chromium, driven by its own protocol (CDP) over a WebSocket: no driver package is needed."""

import asyncio
import base64
import contextlib
import json
import os
import shutil
import tempfile
from pathlib import Path

import aiohttp

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome-headless-shell")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-breakpad",
    "--remote-debugging-port=0",
    "--remote-allow-origins=*",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)

WATCHED = '"$@" </dev/null & cat; kill -9 0'
"""The browser is a script that starts many processes: all end with the standard input of this one, so also when the tests are killed."""


def find():
    """Return the browser of this machine, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """One tab. Everything that the page says, asks for, or that goes wrong in it is kept."""

    def __init__(self, socket):
        self._socket = socket
        self._number = 0
        self._answers = {}
        self.requests, self.problems, self.dialogs = [], [], []
        self._task = asyncio.create_task(self._listen())

    async def _listen(self):
        async for message in self._socket:
            found = json.loads(message.data)
            if "id" in found:
                if (waiting := self._answers.pop(found["id"], None)) and not waiting.done():
                    waiting.set_result(found)
                continue
            method, told = found["method"], found["params"]
            if method == "Network.requestWillBeSent":
                self.requests.append(told["request"]["url"])
            elif method == "Runtime.exceptionThrown":
                self.problems.append(told["exceptionDetails"].get("exception", {}).get("description") or str(told))
            elif method == "Log.entryAdded" and told["entry"]["level"] == "error":
                self.problems.append(told["entry"]["text"])
            elif method == "Page.javascriptDialogOpening":
                self.dialogs.append(told["message"])

    async def call(self, method, **parameters):
        """Call the browser and return its answer."""
        self._number += 1
        waiting = self._answers[self._number] = asyncio.get_running_loop().create_future()
        await self._socket.send_str(json.dumps({"id": self._number, "method": method, "params": parameters}))
        found = await asyncio.wait_for(waiting, 20)
        assert "error" not in found, found
        return found["result"]

    async def run(self, script):
        """Return the value of an expression in the page."""
        found = await self.call(
            "Runtime.evaluate",
            expression=script,
            returnByValue=True,
            awaitPromise=True,
            userGesture=True,
            allowUnsafeEvalBlockedByCSP=False,
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def until(self, script, seconds=15):
        """Wait until an expression is true, and return its value."""
        for _ in range(int(seconds * 20)):
            if value := await self.run(
                f"(() => {{ const found = ({script}); return found instanceof Node ? true : found; }})()"
            ):
                return value
            await asyncio.sleep(0.05)
        text = await self.run("document.body.innerText.slice(0, 1500)")
        msg = f"never true: {script}\n{text}\n{self.problems}"
        raise AssertionError(msg)

    async def go(self, address):
        await self.call("Page.navigate", url=address)
        await self.until("document.readyState === 'complete'")

    async def press(self, key, text=None):
        """Press a key as a person does."""
        codes = {"Enter": 13, "Escape": 27, "Tab": 9}
        text = text or (key if len(key) == 1 else "\r" if key == "Enter" else None)
        code = codes.get(key, ord(key.upper()) if len(key) == 1 else 0)
        more = {"text": text} if text else {}
        await self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **more)
        await self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    async def write(self, text):
        await self.call("Input.insertText", text=text)

    async def look(self, width=1440, height=900, dark=False):
        """Set the window's size and the person's colours."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        scheme = "dark" if dark else "light"
        await self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    async def picture(self, path):
        found = await self.call("Page.captureScreenshot", format="png")
        Path(path).write_bytes(base64.b64decode(found["data"]))

    async def close(self):
        self._task.cancel()
        await self._socket.close()


@contextlib.asynccontextmanager
async def browser(path):
    """Yield what opens a page; the browser and its profile are gone afterwards."""
    profile = Path(tempfile.mkdtemp(prefix="o-chromium-"))
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", WATCHED, "sh", path),
        *FLAGS,
        f"--user-data-dir={profile}",
        "about:blank",
        stdin=asyncio.subprocess.PIPE,
        start_new_session=True,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        env={"PATH": os.defpath, "HOME": str(profile)},
    )
    pages = []
    try:
        note = profile / "DevToolsActivePort"
        for _ in range(400):
            if note.exists() and "\n" in note.read_text():
                break
            assert process.returncode is None, "the browser ended at once"
            await asyncio.sleep(0.05)
        port = int(note.read_text().split()[0])
        async with aiohttp.ClientSession() as session:

            async def opened():
                async with session.put(f"http://127.0.0.1:{port}/json/new?about:blank") as answer:
                    address = (await answer.json(content_type=None))["webSocketDebuggerUrl"]
                page = Page(await session.ws_connect(address, max_msg_size=0))
                pages.append(page)
                for domain in ("Page", "Runtime", "Log", "Network"):
                    await page.call(f"{domain}.enable")
                await page.look()
                return page

            yield opened
            for page in pages:
                await page.close()
    finally:
        process.stdin.close()
        await process.wait()
        shutil.rmtree(profile, ignore_errors=True)
