# SPDX-License-Identifier: Apache-2.0
"""The page on which a person says of each generated picture whether it is realistic (Lu et al., 7: checked by hand).

Where a picture lies says what was decided: pictures/, kept/ or dropped/. Nothing is deleted.
"""

from pathlib import Path
from urllib.parse import quote

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse
from markupsafe import Markup
from starlette.middleware.trustedhost import TrustedHostMiddleware

from sticker_uq.io.images import picture_files
from sticker_uq.scene import InvalidInput
from sticker_uq_lab.datasets.generating import PICTURES, read_manifest

KEPT, DROPPED = "kept", "dropped"
_PLACES = (PICTURES, KEPT, DROPPED)
_PAGE = Markup("""<!doctype html><html lang="en"><meta charset="utf-8"><title>Realistic?</title>
<style>body {{ font: 1.1rem system-ui; margin: 1rem auto; max-width: 64rem; text-align: center }}
img {{ max-width: 100%; max-height: 70vh }} form {{ display: inline }} button {{ font: inherit; padding: .6rem 1.2rem }}</style>
<p>{counts}</p>{body}
""")
_PICTURE = Markup("""<img src="/picture/{link}" alt="{name}"><p>{prompt}</p>""")
_BUTTON = Markup(
    """<form method="post" action="/move/{link}/{place}"><button accesskey="{key}">{text}</button></form> """
)


def review_app(folder: Path) -> FastAPI:
    """The page over ``folder``/pictures, for a browser on this machine; InvalidInput without pictures to review."""
    counts = count(folder)
    if not sum(counts.values()):
        raise InvalidInput(
            f"{folder / PICTURES}: no pictures, expected those of `dataset generate`, or your own"
        )
    for place in (KEPT, DROPPED):
        (folder / place).mkdir(exist_ok=True)
    prompts = {line["file"]: line["prompt"] for line in read_manifest(folder)}
    decided: list[str] = []  # of this session, the last of which can be undone
    app = FastAPI(openapi_url=None)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"])

    @app.get("/")
    def page() -> HTMLResponse:
        counts = ", ".join(f"{number} {place}" for place, number in count(folder).items())
        left = picture_files(folder / PICTURES)
        body = Markup("Every picture is reviewed: Ctrl-C in the terminal ends.<p>")
        if left:
            name = left[0].name
            body = _PICTURE.format(name=name, link=quote(name), prompt=prompts.get(name, ""))
            body += _BUTTON.format(link=quote(name), place=KEPT, key="k", text="Realistic: keep")
            body += _BUTTON.format(link=quote(name), place=DROPPED, key="d", text="Not realistic: drop")
        if decided:
            body += _BUTTON.format(link=quote(decided[-1]), place=PICTURES, key="u", text="Undo the last")
        return HTMLResponse(_PAGE.format(counts=counts, body=body))

    @app.get("/picture/{name}")
    def picture(name: str) -> FileResponse:
        return FileResponse(_find_picture(folder, name))

    @app.post("/move/{name}/{place}")
    def move(name: str, place: str, request: Request) -> RedirectResponse:
        if request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
            raise HTTPException(403, "asked by another page")
        source, target = _find_picture(folder, name), folder / place / name
        if place not in _PLACES or target.exists():
            raise HTTPException(409, f"{name} is in {place} already, or that is none of {', '.join(_PLACES)}")
        source.rename(target)
        if place == PICTURES:
            decided.remove(name)
        else:
            decided.append(name)
        return RedirectResponse("/", 303)

    return app


def count(folder: Path) -> dict[str, int]:
    """How many pictures are in each place of a review."""
    return {
        place: len(picture_files(folder / place)) if (folder / place).is_dir() else 0 for place in _PLACES
    }


def _find_picture(folder: Path, name: str) -> Path:
    for place in _PLACES:
        for path in picture_files(folder / place):
            if path.name == name:
                return path
    raise HTTPException(404, f"no picture {name}")
