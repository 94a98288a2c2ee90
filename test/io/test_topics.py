# SPDX-License-Identifier: Apache-2.0
"""Which topics belong to one camera."""

from __future__ import annotations

import pytest

from sticker_uq.io.topics import folder_of, more_topics, scene_topic_of
from sticker_uq.scene import InvalidInput


def test_a_list_of_topics() -> None:
    assert more_topics("") == more_topics("  ") == ()
    assert more_topics("left/image, /cell/right/image_raw") == ("left/image", "/cell/right/image_raw")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("image", "'image': expected an image topic in a namespace"),
        ("left/image,", "'': expected an image topic"),
        ("left/1mage", "'left/1mage': expected an image topic"),
        ("left/image/compressed", "expected the topic without /compressed"),
        ("left/image, left/other", "several image topics in left/"),
    ],
)
def test_a_list_that_cannot_be_used(text: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        more_topics(text)


@pytest.mark.parametrize(
    ("topic", "folder"), [("image", ""), ("/image", "/"), ("a/b/image", "a/b/"), ("a/image/compressed", "a/")]
)
def test_the_folder_of_a_topic(topic: str, folder: str) -> None:
    assert folder_of(topic) == folder


@pytest.mark.parametrize(
    ("image", "found"),
    [
        ("/cell/left/image/compressed", ["/cell/left/scene"]),
        ("/cell/image", ["/cell/scene"]),
        ("/camera/image_raw", ["/cell/scene"]),
    ],
)
def test_scenes_lie_beside_their_images_or_beside_nobodys(image: str, found: list[str]) -> None:
    scenes = ["/cell/scene", "/cell/left/scene"]
    images = [image, "/cell/left/image/compressed"]
    assert scene_topic_of(image, scenes, images) == found
