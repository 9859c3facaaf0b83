"""A real browser for tests: Debian's chromium without a window, driven over its debugging pipe."""

import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import time

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PATIENCE = 600.0  # seconds, for what hangs and not for what is slow; a page takes about one


class Browser:
    """One page of a headless chromium. Messages are JSON, ended by a zero byte, on descriptors 3 and 4."""

    def __init__(self, profile):
        ours_in, theirs_out = (_high(end) for end in os.pipe())
        theirs_in, ours_out = (_high(end) for end in os.pipe())
        arguments = [
            CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--no-first-run", "--disable-extensions", "--disable-background-networking",
            f"--user-data-dir={profile}", "--window-size=1200,900", "--remote-debugging-pipe",
            "about:blank",
        ]  # fmt: skip
        silence = [(os.POSIX_SPAWN_OPEN, one, os.devnull, os.O_RDWR, 0) for one in range(3)]
        places = [(os.POSIX_SPAWN_DUP2, theirs_in, 3), (os.POSIX_SPAWN_DUP2, theirs_out, 4)]
        # Not by subprocess: to place descriptors it would fork, which Python warns of beside threads.
        self.process = os.posix_spawn(CHROMIUM, arguments, os.environ, file_actions=silence + places)
        os.close(theirs_in)
        os.close(theirs_out)
        self.read, self.write, self.buffer, self.count = ours_in, ours_out, b"", 0
        self.session, self.events = None, []
        pages = [t for t in self.ask("Target.getTargets")["targetInfos"] if t["type"] == "page"]
        target = pages[0]["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method, **parameters):
        """Send a command and wait for its answer; events that come before it are kept."""
        self.count += 1
        message = {"id": self.count, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self.count:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def _next(self):
        end = time.monotonic() + PATIENCE
        while b"\0" not in self.buffer:
            if not select.select([self.read], [], [], max(end - time.monotonic(), 0))[0]:
                raise TimeoutError("chromium does not answer")
            piece = os.read(self.read, 1 << 20)
            assert piece, "chromium has ended"
            self.buffer += piece
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def open(self, path):
        """Open a file, or an address as text."""
        self.events.clear()
        self.ask("Page.navigate", url=path if isinstance(path, str) else path.absolute().as_uri())
        self.wait("document.readyState === 'complete'")
        return self

    def run(self, code):
        """The value of an expression in the page."""
        answer = self.ask("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait(self, code):
        end = time.monotonic() + PATIENCE
        while not self.run(f"Boolean({code})"):
            assert time.monotonic() < end, f"never true: {code}"
            time.sleep(0.02)

    def complaints(self, home="file:"):
        """Errors and warnings of the console, exceptions, and requests outside ``home``."""
        found = []
        for event in self.events:
            method, what = event["method"], event["params"]
            if method == "Runtime.exceptionThrown":
                found.append(what["exceptionDetails"]["text"])
            elif method == "Runtime.consoleAPICalled" and what["type"] in ("error", "warning", "assert"):
                found.append(str(what["args"]))
            elif method == "Log.entryAdded" and what["entry"]["level"] in ("error", "warning"):
                found.append(what["entry"]["text"])
            elif method == "Network.requestWillBeSent":
                url = what["request"]["url"]
                found += [] if url.startswith((home, "data:", "blob:")) else [url]
        return found

    def close(self):
        with contextlib.suppress(OSError):
            os.close(self.write)
        os.close(self.read)
        for sign in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process, sign)
            end = time.monotonic() + 10
            while time.monotonic() < end:
                if os.waitpid(self.process, os.WNOHANG)[0]:
                    return
                time.sleep(0.02)


def _high(end):
    """The same end of a pipe under a number that is not 3 or 4, where the browser wants its own."""
    moved = fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 20)
    os.close(end)
    return moved
