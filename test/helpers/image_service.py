# SPDX-License-Identifier: Apache-2.0
"""A server on this machine that speaks the APIs of the image services, and what a test asks of it."""

import base64
import io
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from PIL import Image

from sticker_uq.lab.datasets.prompts import Prompt

KEY = "sk-very-secret-4711"
REFUSAL = (
    400,
    {"error": {"code": "content_policy_violation", "message": "rejected by our safety system"}},
    {},
)


def encoded(colour=(10, 200, 30), kind="PNG"):
    stream = io.BytesIO()
    Image.new("RGB", (40, 32), colour).save(stream, kind)
    return stream.getvalue()


PNG = encoded()


def openai_answer(data=PNG):
    return (
        200,
        {"data": [{"b64_json": base64.b64encode(data).decode(), "revised_prompt": "a grey laptop"}]},
        {},
    )


def stability_answer(data=PNG, reason="SUCCESS"):
    return 200, {"image": base64.b64encode(data).decode(), "finish_reason": reason, "seed": 1}, {}


class Service(ThreadingHTTPServer):
    """Answers requests in the order of `answers`, and a last one for ever; None: no answer until the test ends."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers, self.requests, self.ended = [], [], threading.Event()
        self.silent = threading.Event()  # set while a request waits for nothing
        self.url = f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        service = self.server
        body = self.rfile.read(int(self.headers["Content-Length"]))
        service.requests.append((self.path, dict(self.headers.items()), body))
        answer = service.answers.pop(0) if len(service.answers) > 1 else service.answers[0]
        if answer is None:
            service.silent.set()
            service.ended.wait(60)
            return
        status, content, headers = answer
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *arguments):
        pass


def prompts(count=1):
    return [Prompt(index, 100 + index, 1, f"a laptop, number {index}") for index in range(count)]
