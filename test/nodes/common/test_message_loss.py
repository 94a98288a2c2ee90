# SPDX-License-Identifier: Apache-2.0
"""What never came is counted by its number, whatever becomes of the publishers."""

from hypothesis import given
from hypothesis import strategies as st

from sticker_uq.nodes.common.image_input import MessageLossCounter


def watched(*numbers: int | None) -> int | None:
    counter = MessageLossCounter()
    for number in numbers:
        counter.note_message(number)
    return counter.missing_count


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
        counter.note_message(3)
        counter.note_message(4)
        if not told_after:
            counter.publishers_changed(1)
        counter.note_message(900)
        if told_after:
            counter.publishers_changed(1)
        for number in (901, 903, 904):
            counter.note_message(number)
        assert counter.missing_count == 1


def test_nothing_can_be_told_of_several_publishers_or_without_numbers():
    counter = MessageLossCounter()
    counter.note_message(1)
    counter.publishers_changed(2)
    counter.note_message(800)
    assert counter.missing_count is None
    counter.publishers_changed(1)
    assert counter.missing_count == 0
    assert watched(None, None) is None
