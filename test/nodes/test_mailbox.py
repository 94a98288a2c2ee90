"""The one-slot mailbox: newest wins, losses are counted, closing wakes."""

from __future__ import annotations

import queue
import threading

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sticker_uq.nodes.mailbox import Mailbox


class MailboxModel(RuleBasedStateMachine):
    """Against the obvious model: a list whose last element is what waits."""

    def __init__(self) -> None:
        super().__init__()
        self.mailbox: Mailbox[int] = Mailbox()
        self.waiting: list[int] = []
        self.dropped = 0
        self.closed = False

    @rule(item=st.integers())
    def put(self, item: int) -> None:
        self.mailbox.put(item)
        if not self.closed:
            self.dropped += len(self.waiting)
            self.waiting = [item]

    @precondition(lambda self: self.waiting or self.closed)
    @rule()
    def take(self) -> None:
        expected = None if self.closed else self.waiting.pop()
        assert self.mailbox.take() == expected

    @rule()
    def close(self) -> None:
        self.mailbox.close()
        self.closed = True

    @invariant()
    def counts(self) -> None:
        assert self.mailbox.dropped == self.dropped
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


def test_a_waiting_worker_gets_the_item() -> None:
    mailbox: Mailbox[int] = Mailbox()
    thread, taken = worker_of(mailbox)
    mailbox.put(1)
    assert taken.get(timeout=10) == 1
    mailbox.close()
    thread.join(timeout=10)
    assert not thread.is_alive()


def test_closing_wakes_a_waiting_worker_with_nothing() -> None:
    mailbox: Mailbox[int] = Mailbox()
    thread, taken = worker_of(mailbox)
    mailbox.close()
    assert taken.get(timeout=10) is None
    thread.join(timeout=10)
    assert not thread.is_alive()


def test_nothing_is_lost_uncounted_between_threads() -> None:
    mailbox: Mailbox[int] = Mailbox()
    thread, taken = worker_of(mailbox)
    for item in range(1, 2001):
        mailbox.put(item)
    received = []
    while not received or received[-1] != 2000:
        received.append(taken.get(timeout=10))
    mailbox.close()
    thread.join(timeout=10)
    assert received == sorted(received), "never an older item after a newer one"
    assert len(received) + mailbox.dropped == 2000
