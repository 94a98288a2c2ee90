# SPDX-License-Identifier: Apache-2.0
"""Which topics belong to one camera."""

import pytest

from sticker_uq.io.topics import folder_of, images_elsewhere, more_topics, scene_topic_of
from sticker_uq.scene import InvalidInput


def test_a_list_of_topics():
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
def test_a_list_that_cannot_be_used(text, reason):
    with pytest.raises(InvalidInput, match=reason):
        more_topics(text)


@pytest.mark.parametrize(
    ("topic", "folder"), [("image", ""), ("/image", "/"), ("a/b/image", "a/b/"), ("a/image/compressed", "a/")]
)
def test_the_folder_of_a_topic(topic, folder):
    assert folder_of(topic) == folder


@pytest.mark.parametrize(
    ("image", "found"),
    [
        ("/cell/left/image/compressed", ["/cell/left/scene"]),
        ("/cell/image", ["/cell/scene"]),
        ("/camera/image_raw", ["/cell/scene"]),
    ],
)
def test_scenes_lie_beside_their_images_or_beside_nobodys(image, found):
    scenes = ["/cell/scene", "/cell/left/scene"]
    assert scene_topic_of(image, scenes, [image, "/cell/left/image/compressed"]) == found


RAW, JPEG = "sensor_msgs/msg/Image", "sensor_msgs/msg/CompressedImage"


@pytest.mark.parametrize(
    ("wanted", "published", "said"),
    [
        ("/image", {"/image/compressed": [JPEG]}, "but /image/compressed is published: set image_transport to compressed"),
        ("/image/compressed", {"/image": [RAW]}, "but /image is published: set image_transport to raw"),
        ("/image", {"/usb_cam/image_raw": [RAW]}, "but images are published on /usb_cam/image_raw: set camera_topic"),
        ("/cell/image", {"/image": [RAW], "/a": [RAW]}, "but images are published on /image, /a: set camera_topic"),
        ("/image", {"/b/compressed": [JPEG], "/b": [RAW]}, "but images are published on /b: set camera_topic"),
        ("/image", {f"/camera_{n}": [RAW] for n in range(9)}, "/camera_0, /camera_1, /camera_2: set camera_topic"),
    ],
)  # fmt: skip
def test_where_images_are_published_instead(wanted, published, said):
    assert said in images_elsewhere(wanted, published)


@pytest.mark.parametrize("published", [{}, {"/image": [RAW]}, {"/image/compressed": ["std_msgs/msg/String"]}])
def test_nothing_is_suggested_where_no_other_images_are(published):
    assert images_elsewhere("/image", published) == ""
