# SPDX-License-Identifier: Apache-2.0
"""The mailbox: the newest of each sender, in turn; losses are counted, closing wakes."""

import queue
import threading
from collections import Counter

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sticker_uq.nodes.detector.mailbox import Mailbox

SENDERS = st.sampled_from(["", "left", "right"])


class MailboxModel(RuleBasedStateMachine):
    """Against the obvious model: what waits of each sender, and who was served when."""

    def __init__(self) -> None:
        super().__init__()
        self.mailbox: Mailbox[tuple[str, int]] = Mailbox()
        self.waiting: dict[str, int] = {}
        self.served: list[str] = []
        self.dropped: Counter[str] = Counter()
        self.closed = False

    @rule(item=st.integers(), sender=SENDERS)
    def put(self, item: int, sender: str) -> None:
        self.mailbox.put((sender, item), sender)
        if not self.closed:
            self.dropped[sender] += sender in self.waiting
            self.waiting[sender] = item

    @precondition(lambda self: self.waiting or self.closed)
    @rule()
    def take(self) -> None:
        taken = self.mailbox.take()
        if self.closed:
            assert taken is None
            return
        assert taken is not None
        sender, item = taken
        assert self.waiting.pop(sender) == item
        last = {name: self.served[::-1].index(name) for name in self.waiting if name in self.served}
        if sender in self.served:
            assert set(self.waiting) <= set(self.served), "who was never served comes first"
            assert all(self.served[::-1].index(sender) > turns for turns in last.values())
        self.served.append(sender)

    @rule()
    def close(self) -> None:
        self.mailbox.close()
        self.closed = True

    @invariant()
    def counts(self) -> None:
        assert self.mailbox.dropped_count == self.dropped.total()
        assert all(
            self.mailbox.dropped_count_of(name) == self.dropped[name] for name in ("", "left", "right")
        )
        assert self.mailbox.closed is self.closed


TestMailboxModel = MailboxModel.TestCase


def worker_of(mailbox: Mailbox[int]) -> tuple[threading.Thread, queue.Queue[int | None]]:
    taken: queue.Queue[int | None] = queue.Queue()

    def work() -> None:
        while (item := mailbox.take()) is not None:
            taken.put(item)
        taken.put(None)

    thread = threading.Thread(target=work)
    thread.start()
    return thread, taken


def test_closing_wakes_a_waiting_worker_with_nothing():
    mailbox: Mailbox[int] = Mailbox()
    thread, taken = worker_of(mailbox)
    mailbox.close()
    assert taken.get(timeout=60) is None
    thread.join(timeout=60)
    assert not thread.is_alive()


def test_nothing_is_lost_uncounted_between_threads():
    mailbox: Mailbox[int] = Mailbox()
    thread, taken = worker_of(mailbox)
    for item in range(1, 2001):
        mailbox.put(item)
    received = []
    while not received or received[-1] != 2000:
        received.append(taken.get(timeout=60))
    mailbox.close()
    thread.join(timeout=60)
    assert received == sorted(received), "never an older item after a newer one"
    assert len(received) + mailbox.dropped_count == 2000
