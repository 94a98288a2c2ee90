# SPDX-License-Identifier: Apache-2.0
import json

import pytest
import yaml
from typer.testing import CliRunner

from sticker_uq.scene import InvalidInput
from sticker_uq_lab.cli.dataset import app
from sticker_uq_lab.datasets.prompts import PACKAGED_TEMPLATE, Prompt, PromptTemplate

PAPERS_EXAMPLE = (
    "a laptop, three stickers on the lid, one small music sticker, one small animal sticker, one small superhero sticker, "
    "stickers close to each other, top-down view, screen turn off, on a flat surface, a solid dark background"
)


def run(*arguments):
    return CliRunner().invoke(app, ["prompts", *(str(argument) for argument in arguments)])


def read_prompts(path):
    return [Prompt(**json.loads(line)) for line in path.read_text().splitlines()]


def phrases(**changes):
    return yaml.safe_load(PACKAGED_TEMPLATE.read_text()) | changes


def save(path, values):
    path.write_text(json.dumps(values))  # JSON is YAML without aliases
    return path


def test_the_template_makes_the_papers_example(tmp_path):
    only = {
        "laptops": ["a laptop"],
        "numbers": {3: "three"},
        "styles": ["music", "animal", "superhero"],
        "locations": {3: ["stickers close to each other"]},
        "other": [["top-down view"], ["screen turn off"], ["on a flat surface"], ["a solid dark background"]],
    }
    template = PromptTemplate.load(save(tmp_path / "t.yaml", phrases(**only)))
    drawn = {template.draw(seed).prompt for seed in range(60)}
    assert PAPERS_EXAMPLE in drawn
    assert len(drawn) == 6  # orders of three styles: nothing else is left to chance, and no style comes twice


def test_every_packaged_phrase_comes_and_the_number_is_that_of_the_text():
    template = PromptTemplate.load()
    drawn = [template.draw(seed) for seed in range(600)]
    text = "\n".join(prompt.prompt for prompt in drawn)
    places = [place for of_number in template.locations.values() for place in of_number]
    for phrase in (
        *template.laptops,
        *template.styles,
        *places,
        *(one for group in template.other for one in group),
    ):
        assert phrase in text, phrase
    for prompt in drawn:
        assert prompt.prompt.count(" sticker,") == prompt.stickers
        if prompt.stickers == 3:
            assert "big" not in prompt.prompt
    assert {prompt.stickers for prompt in drawn} == {1, 2, 3}


def test_prompt_i_has_seed_plus_i_and_the_phrases_of_the_template(tmp_path):
    mine = save(tmp_path / "mine.yaml", phrases(laptops=["a tablet"]))
    for name, count, seed in (("a", 6, 10), ("b", 4, 12)):
        result = run("--out", tmp_path / name, "--count", count, "--seed", seed, "--template", mine)
        assert result.exit_code == 0, result.output
    a, b = (read_prompts(tmp_path / name) for name in "ab")
    assert [prompt.prompt for prompt in a[2:]] == [prompt.prompt for prompt in b]
    assert [prompt.seed for prompt in a] == [10, 11, 12, 13, 14, 15]
    assert len({prompt.prompt for prompt in a}) == 6
    assert all(prompt.prompt.startswith("a tablet, ") for prompt in a)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"laptops": []}, "laptops"),
        ({"numbers": {0: "no"}}, "numbers"),
        ({"numbers": {4: "four"}}, "4 stickers"),
        ({"sticker": "one {colour} sticker"}, "{size}, {style}"),
        ({"many": "{number stickers"}, "many"),
        ({"styles": [""]}, "styles"),
        ({"colours": ["red"]}, "colours"),
    ],
)
def test_a_wrong_template_is_refused_by_name(tmp_path, changes, named):
    with pytest.raises(InvalidInput, match=r"t\.yaml") as caught:
        PromptTemplate.load(save(tmp_path / "t.yaml", phrases(**changes)))
    assert named in str(caught.value)
