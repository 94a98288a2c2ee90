# SPDX-License-Identifier: Apache-2.0
"""What never came is counted by its number, whatever becomes of the publishers; with real processes too."""

import signal

import numpy as np
from builtin_interfaces.msg import Time
from hypothesis import given
from hypothesis import strategies as st
from sensor_msgs.msg import Image

from sticker_uq.nodes.common import qos
from sticker_uq.nodes.common.image_input import MessageLossCounter
from sticker_uq.nodes.common.images import bgr_to_image
from sticker_uq.testing.bench import NodeProcess

PART = "detector: images"
ALL = ("received", "lost", "skipped")
WHILE_STOPPED = 12


def watched(*numbers: int | None) -> int | None:
    counter = MessageLossCounter()
    for number in numbers:
        counter.received(number)
    return counter.missing


@given(st.integers(1, 50), st.sets(st.integers(0, 60)), st.integers(2, 40))
def test_every_gap_is_counted_once_the_next_message_is_there(first, absent, count):
    sent = range(first, first + count)
    came = [n for n in sent if n - first not in absent or n in (sent[0], sent[-1])]
    assert watched(*came, sent[-1] + 1) == count - len(came)


def test_what_was_sent_before_the_first_message_came_is_not_missing():
    assert watched(700, 701, 702) == 0


def test_a_publisher_that_begins_anew_is_not_a_gap():
    assert watched(5, 6, 1, 2, 4, 5) == 1


def test_another_publisher_is_no_gap_whenever_its_coming_is_told():
    for told_after in (False, True):
        counter = MessageLossCounter()
        counter.received(3)
        counter.received(4)
        if not told_after:
            counter.publishers_changed(1)
        counter.received(900)
        if told_after:
            counter.publishers_changed(1)
        for number in (901, 903, 904):
            counter.received(number)
        assert counter.missing == 1


def test_nothing_can_be_told_of_several_publishers_or_without_numbers():
    counter = MessageLossCounter()
    counter.received(1)
    counter.publishers_changed(2)
    counter.received(800)
    assert counter.missing is None
    counter.publishers_changed(1)
    assert counter.missing == 0
    assert watched(None, None) is None


def picture(number: int) -> Image:
    return bgr_to_image(np.full((48, 64, 3), 100 + number % 100, np.uint8), Time(sec=number), "camera")


def test_what_a_stopped_detector_never_took_is_counted(bench):
    newest = bench.diagnostics()
    with NodeProcess("test.nodes.fake_perception", {"autostart": "true"}) as detector:
        detector.wait_for("waiting for first image on /image")
        camera = bench.publisher(Image, "image", qos.NEWEST_IMAGE_BEST_EFFORT)
        sent = 0

        def publish() -> bool:
            nonlocal sent
            sent += 1
            camera.publish(picture(sent))
            return True

        def counted(*names: str) -> int:
            told = [newest.value(PART, name) for name in names]
            return sum(int(value) for value in told if value is not None and value != "n/a")

        def after_reports(count: int) -> None:
            for _ in range(count):
                before = newest.get(PART)
                bench.until(lambda b=before: newest.get(PART) is not b, "a report")

        # a best-effort camera is not told when the other side has found it
        bench.until(lambda: publish() and counted("received") > 0, "an image")
        for _ in range(3):  # what is missing before a message is counted when another one has followed
            publish()
            after_reports(2)  # the first one may be older than the image
        unheard = sent - counted(*ALL)
        detector.process.send_signal(signal.SIGSTOP)
        for _ in range(WHILE_STOPPED):
            publish()
        detector.process.send_signal(signal.SIGCONT)
        before = counted("skipped")
        bench.until(
            lambda: publish() and counted("skipped") > before,
            "what was skipped while the detector stood still",
        )

        def all_known() -> bool:
            publish()
            after_reports(2)
            return unheard + counted(*ALL) == sent

        bench.until(all_known, "every image was received, reported as lost, or is known to be skipped")
