# SPDX-License-Identifier: BSD-2-Clause
"""A headless Chromium, spoken to by the DevTools protocol over pipes: no driver program, no network.

https://chromedevtools.github.io/devtools-protocol/; --remote-debugging-pipe: messages end with a zero byte, and go in by
descriptor 3 and out by descriptor 4.
"""
import base64
import json
import os
import select
import shutil
import subprocess
import time


class Failed(Exception):
    pass


def find():
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Browser:
    def __init__(self, folder, limit=60):
        self.limit, self.number, self.buffer = limit, 0, b""
        self.errors, self.requests = [], []
        to_read, self.to = os.pipe()
        self.answers, to_write = os.pipe()

        def connect():
            # Above 4 first: either may be 3 or 4 already.
            high_read, high_write = os.dup(to_read), os.dup(to_write)
            high_read, high_write = os.dup2(high_read, 100), os.dup2(high_write, 101)
            os.dup2(high_read, 3)
            os.dup2(high_write, 4)

        environment = os.environ | {"HOME": str(folder)}
        environment.pop("DBUS_SESSION_BUS_ADDRESS", None)
        self.process = subprocess.Popen(
            [find(), "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--no-first-run",
             "--disable-dev-shm-usage", "--disable-extensions", "--disable-background-networking", "--disable-sync",
             f"--user-data-dir={folder}/profile", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, close_fds=False,
            preexec_fn=connect, env=environment)
        os.close(to_read)
        os.close(to_write)
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self):
        os.close(self.to)
        self.process.kill()
        self.process.wait()
        os.close(self.answers)

    def message(self, deadline):
        while b"\0" not in self.buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.answers], [], [], left)[0]:
                raise Failed(f"the browser does not answer within {self.limit} s")
            piece = os.read(self.answers, 1 << 16)
            if not piece:
                raise Failed("the browser has ended")
            self.buffer += piece
        one, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(one)

    def take(self, message):
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(parameters["exceptionDetails"])
        elif method == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.errors.append(parameters["entry"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        return method

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + self.limit
        while True:
            answer = self.message(deadline)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise Failed(f"{method}: {answer['error']}")
                return answer["result"]
            self.take(answer)

    def open(self, path):
        self.errors.clear()
        self.requests.clear()
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=f"file://{path}")
        deadline = time.monotonic() + self.limit
        while self.run("document.readyState") != "complete" or self.run("location.protocol") != "file:":
            if time.monotonic() > deadline:
                raise Failed(f"{path} is not loaded")

    def run(self, script):
        """The value of an expression."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise Failed(result["exceptionDetails"])
        return result["result"].get("value")

    def key(self, name, code, text=""):
        common = {"key": name, "code": name, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def look(self, width=1200, height=900, dark=False, medium=""):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500)
        self.call("Emulation.setEmulatedMedia", media=medium,
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def screenshot(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def printed(self):
        return base64.b64decode(self.call("Page.printToPDF", printBackground=False)["data"])
