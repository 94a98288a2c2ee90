# SPDX-License-Identifier: Apache-2.0
"""The page that asks about pictures, over real connections: what it takes, keeps, refuses and takes back."""

import errno
import json
from contextlib import contextmanager

import cv2
import numpy as np
import pytest

from sticker_uq.calibration.answers import About, AnswerFile, Question, read_answers
from sticker_uq.console.asking import Asking, serve
from sticker_uq.console.server import ConsoleSettings
from test.console.test_security import Server

ABOUT = About(model_hash="m", settings_hash="s", panel_hash="")
BOX, NEAR, OTHER = (20.0, 20.0, 60.0, 60.0), (25.0, 20.0, 65.0, 60.0), (100.0, 40.0, 150.0, 90.0)
BOXES = {"a": (), "b": (BOX, NEAR, OTHER), "c": (OTHER,)}


def questions(folder, **boxes):
    found = []
    for number, (image, own) in enumerate((boxes or BOXES).items()):
        file = folder / f"{image}.png"
        cv2.imwrite(str(file), np.full((120, 160, 3), 60 + 40 * number, np.uint8))
        found.append(Question(image, file.name, file, (160, 120), own))
    return found


@contextmanager
def asking(folder, asked=None, **settings):
    """A server that asks about three pictures in ``folder``, or ``asked``, and the file of answers."""
    file = AnswerFile(folder / "answers.jsonl", ABOUT)
    try:
        with serve(
            Asking(asked or questions(folder), file), ConsoleSettings(**{"port": 0} | settings)
        ) as address:
            yield Server(address, None)
    finally:
        file.close()


def said(server, path, **body):
    status, _, reply = server.post(path, json.dumps(body).encode())
    return status, json.loads(reply)


def test_answers_are_kept_taken_back_and_resumed(tmp_path):
    path = tmp_path / "answers.jsonl"
    with asking(tmp_path) as server:
        first = json.loads(server.request(path="/question")[2])
        assert (first["answered"], first["of"], first["next"], first["last"]) == (0, 3, "b", None)
        assert first["question"]["image"] == "a"
        status, reply = said(server, "/answer", image="a", boxes=[], same=[], other=True)
        assert status == 200
        assert reply["question"]["pairs"] == [[0, 1]], "boxes at one place"
        assert read_answers(path)[1].keys() == {"a"}, "on the disk when it is answered"
        status, reply = said(
            server,
            "/answer",
            image="b",
            boxes=["sticker", "takes_logo", "no_sticker"],
            same=[True],
            other=False,
        )
        assert (status, reply["question"]["image"], reply["last"]) == (200, "c", "b")
        kept = read_answers(path)[1]["b"]
        assert [one.same_as for one in kept.boxes] == [None, 0, None]
        assert kept.sticker_count == 1
        status, reply = said(server, "/undo", image="b")
        assert (status, reply["question"]["image"], reply["answered"]) == (200, "b", 1)
    with asking(tmp_path) as server:  # another day, and another base, which releases more
        assert json.loads(server.request(path="/question")[2])["question"]["image"] == "b"
    with asking(tmp_path, questions(tmp_path, **BOXES | {"a": (OTHER,)})) as server:
        assert json.loads(server.request(path="/question")[2])["answered"] == 0


def test_what_does_not_fit_the_question_is_refused_and_changes_nothing(tmp_path):
    with asking(tmp_path) as server:
        whole = {"image": "a", "boxes": [], "same": [], "other": False}
        for path, body, status in (
            ("/answer", whole | {"image": "b"}, 409),
            ("/answer", whole | {"boxes": ["sticker"]}, 409),
            ("/answer", whole | {"same": [True]}, 409),
            ("/answer", whole | {"boxes": ["perhaps"]}, 422),
            ("/answer", whole | {"other": None}, 422),
            ("/answer", whole | {"more": 1}, 422),
            ("/undo", {"image": "a"}, 409),
        ):
            assert said(server, path, **body)[0] == status, body
        assert server.post("/answer", json.dumps(whole).encode(), Origin="http://elsewhere")[0] == 403
        assert said(server, "/answer", **whole)[0] == 200
        both = {"image": "b", "boxes": ["sticker"] * 3, "other": False}
        assert said(server, "/answer", **both, same=[None])[0] == 409, (
            "whether it is one sticker was not said"
        )
        assert said(server, "/answer", **both, same=[False])[0] == 200
        assert read_answers(tmp_path / "answers.jsonl")[1]["b"].sticker_count == 3


def test_pictures_come_as_they_are_and_only_those_asked_about(tmp_path):
    (tmp_path / "secret.png").write_bytes(b"x")
    with asking(tmp_path) as server:
        status, head, body = server.request(path="/picture/b.jpg")
        assert (status, "image/jpeg" in head) == (200, True)
        picture = cv2.imdecode(np.frombuffer(body.encode("latin-1"), np.uint8), cv2.IMREAD_COLOR)
        assert picture.shape == (120, 160, 3)
        assert abs(int(picture.mean()) - 100) < 3
        for name in ("secret", "..%2Fsecret", "d"):
            assert server.request(path=f"/picture/{name}.jpg")[0] in (204, 404)


def test_the_page_tells_that_nothing_was_written(tmp_path, monkeypatch):
    with asking(tmp_path) as server:

        def full(*_):
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr("sticker_uq.calibration.answers.os.fsync", full)
        whole = {"image": "a", "boxes": [], "same": [], "other": False}
        status, reply = said(server, "/answer", **whole)
        assert (status, reply["detail"]) == (507, "not kept: No space left on device")
        monkeypatch.undo()
        assert json.loads(server.request(path="/question")[2])["answered"] == 0
        assert said(server, "/answer", **whole)[0] == 200


def test_other_machines_need_the_token(tmp_path):
    with asking(tmp_path, token_file=str(tmp_path / "token")) as server:
        assert server.request()[0] == server.request(path="/question")[0] == 401
        assert server.request(path="/picture/a.jpg")[0] == 401
        status, cookie = server.sign_in((tmp_path / "token").read_text().strip())
        assert status == 204
        assert server.request(path="/question", Cookie=cookie.partition(";")[0])[0] == 200
    with pytest.raises(Exception, match="expected token_file"), asking(tmp_path, host="0.0.0.0"):
        pass
