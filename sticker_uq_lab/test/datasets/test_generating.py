# SPDX-License-Identifier: Apache-2.0
"""Pictures from prompts: by a server that speaks OpenAI's protocol, and by a tiny Stable Diffusion; and their review."""

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from sticker_uq.cli import app
from sticker_uq.io.coco import encode_picture
from sticker_uq.io.images import read_image_file
from sticker_uq_lab.datasets.reviewing import review_app

KEY = "sk-of-the-test"


class Images(BaseHTTPRequestHandler):
    """OpenAI's images/generations: a grey picture whose level is the number of the request."""

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        asked["path"] = self.path
        self.server.asked.append(asked)
        number = len(self.server.asked)
        if self.headers["Authorization"] != f"Bearer {KEY}":
            return self.answer(401, {"error": {"message": "no such key", "code": "invalid_api_key"}})
        if number == 1:  # busy: the client asks again
            return self.answer(429, {"error": {"message": "slow down", "code": "rate_limit_exceeded"}})
        if "three" in asked["prompt"]:
            return self.answer(400, {"error": {"message": "no", "code": "content_policy_violation"}})
        picture = encode_picture(np.full((8, 9, 3), number, np.uint8), "png")
        return self.answer(200, {"created": 1, "data": [{"b64_json": base64.b64encode(picture).decode()}]})

    def answer(self, status, document):
        content = json.dumps(document).encode()
        self.send_response(status)
        for name, value in (("Content-Type", "application/json"), ("retry-after-ms", "1")):
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


@pytest.fixture
def service(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), Images) as server:
        server.asked, server.url = [], f"http://127.0.0.1:{server.server_port}/v1"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def prompts(tmp_path):
    path = tmp_path / "prompts.jsonl"
    texts = ("a laptop, one sticker", "a laptop, three stickers", "a Dell laptop, two stickers")
    lines = [{"index": i, "seed": 7 + i, "stickers": 1, "prompt": text} for i, text in enumerate(texts)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def run(*arguments):
    done = CliRunner().invoke(app, ["dataset", *map(str, arguments)])
    return done.exit_code, done.output


def manifest(folder):
    return [json.loads(line) for line in (folder / "manifest.jsonl").read_text().splitlines()]


def test_dall_e_is_asked_once_for_each_prompt_and_the_manifest_says_what_came(service, prompts, tmp_path):
    out = tmp_path / "out"
    options = ("generate", "--prompts", prompts, "--out", out, "--base-url", service.url)
    status, output = run(*options)
    assert status == 0, output
    assert "2 pictures in" in output
    assert "1 refused" in output
    assert [one["file"] for one in manifest(out)] == ["00000.png", None, "00002.png"]
    assert [one["seed"] for one in manifest(out)] == [7, 8, 9]
    assert {one["model"] for one in manifest(out)} == {"dall-e-3"}
    first = service.asked[0]
    assert first == service.asked[1], "busy, so asked again"
    assert (first["path"], first["model"], first["prompt"]) == (
        "/v1/images/generations",
        "dall-e-3",
        "a laptop, one sticker",
    )
    assert (read_image_file(out / "pictures" / "00002.png") == 4).all()
    assert run(*options)[0] == 0
    assert len(service.asked) == 4, "what is there is not paid for twice"
    status, output = run(*options, "--model", "gpt-image-1")
    assert status == 2
    assert "is of dall-e-3" in output
    assert len(service.asked) == 4


def test_what_ends_a_generation_is_said_and_finished_pictures_stay(service, prompts, tmp_path, monkeypatch):
    out = tmp_path / "out"
    options = ("generate", "--prompts", prompts, "--out", out, "--base-url", service.url)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-wrong")
    status, output = run(*options)
    assert status == 2
    assert "no such key" in output
    assert not (out / "manifest.jsonl").exists()
    monkeypatch.delenv("OPENAI_API_KEY")
    assert "OPENAI_API_KEY" in run(*options)[1]
    prompts.write_text('{"index": 0}\n')
    assert "line 1: expected a prompt as" in run(*options)[1]
    assert "--base-url" in run(*options, "--client", "diffusers")[1]


def tiny_stable_diffusion(folder):
    from diffusers import AutoencoderKL, PNDMScheduler, StableDiffusionPipeline, UNet2DConditionModel
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

    letters = "abcdefghijklmnopqrstuvwxyz,"
    words = ["<|startoftext|>", "<|endoftext|>", *(f"{letter}</w>" for letter in letters), *letters]
    (folder / "vocab.json").write_text(json.dumps({word: number for number, word in enumerate(words)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    torch.manual_seed(0)
    size = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    text = CLIPTextConfig(vocab_size=len(words), bos_token_id=0, eos_token_id=1, **size)
    blocks = {"down_block_types": ("CrossAttnDownBlock2D",), "up_block_types": ("CrossAttnUpBlock2D",)}
    StableDiffusionPipeline(
        vae=AutoencoderKL(block_out_channels=(8,), norm_num_groups=4, sample_size=8),
        text_encoder=CLIPTextModel(text).eval(),
        tokenizer=CLIPTokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"), model_max_length=77),
        unet=UNet2DConditionModel(
            sample_size=8,
            block_out_channels=(8,),
            cross_attention_dim=16,
            norm_num_groups=4,
            attention_head_dim=4,
            **blocks,
        ),
        scheduler=PNDMScheduler(skip_prk_steps=True),
        safety_checker=None,
        feature_extractor=None,
    ).save_pretrained(folder / "model")
    return folder / "model"


def test_a_local_stable_diffusion_makes_another_picture_of_each_prompt(prompts, tmp_path):
    model = tiny_stable_diffusion(tmp_path)
    made = []
    for out in (tmp_path / "a", tmp_path / "b"):
        status, output = run(
            "generate", "--client", "diffusers", "--model", model, "--prompts", prompts, "--out", out
        )
        assert status == 0, output
        assert [one["model"] for one in manifest(out)] == [str(model)] * 3
        made.append([read_image_file(out / "pictures" / f"0000{number}.png") for number in range(3)])
    assert all((one == other).all() for one, other in zip(*made, strict=True)), "of the same seeds"
    assert not any((made[0][one] == made[0][other]).all() for one, other in ((0, 1), (0, 2), (1, 2)))
    (tmp_path / "nothing").mkdir()
    status, output = run(
        "generate",
        "--client",
        "diffusers",
        "--model",
        tmp_path / "nothing",
        "--prompts",
        prompts,
        "--out",
        out,
    )
    assert status == 2
    assert "--client diffusers, model" in output


def test_a_person_keeps_what_is_realistic(tmp_path):
    (tmp_path / "pictures").mkdir()
    for name in ("0.png", "1#.png", "2.png"):
        (tmp_path / "pictures" / name).write_bytes(encode_picture(np.zeros((4, 4, 3), np.uint8), "png"))
    line = {"index": 0, "prompt": "a <laptop>", "model": "m", "seed": 0, "file": "0.png"}
    (tmp_path / "manifest.jsonl").write_text(json.dumps(line) + "\n")
    page = TestClient(review_app(tmp_path), base_url="http://127.0.0.1")
    shown = page.get("/").text
    assert "3 pictures, 0 kept, 0 dropped" in shown
    assert "a &lt;laptop&gt;" in shown
    assert page.get("/picture/0.png").content.startswith(b"\x89PNG")
    assert "1 kept" in page.post("/move/0.png/kept").text
    assert 'action="/move/1%23.png/dropped"' in page.get("/").text
    assert "1 dropped" in page.post("/move/1%23.png/dropped").text
    assert "2 pictures, 1 kept, 0 dropped" in page.post("/move/1%23.png/pictures").text, "undone"
    page.post("/move/1%23.png/dropped")
    assert "Every picture is reviewed" in page.post("/move/2.png/kept").text
    again = TestClient(review_app(tmp_path), base_url="http://127.0.0.1")
    assert "0 pictures, 2 kept, 1 dropped" in again.get("/").text, "where a picture lies is what was decided"
    assert (tmp_path / "dropped" / "1#.png").exists()
    foreign = {"sec-fetch-site": "cross-site"}
    assert again.post("/move/0.png/dropped", headers=foreign).status_code == 403
    assert again.post("/move/0.png/elsewhere").status_code == 409
    assert again.get("/picture/manifest.jsonl").status_code == 404
    assert TestClient(review_app(tmp_path), base_url="http://evil.example").get("/").status_code == 400
    assert "no pictures" in run("review", tmp_path / "none")[1]
