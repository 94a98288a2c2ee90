# SPDX-License-Identifier: Apache-2.0
"""Reading images of a replay ahead of whoever needs them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Generator, Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


def ahead(items: Iterable[T], depth: int, name: str) -> Generator[T, None, None]:
    """``items`` of a replay, which a thread called ``name`` takes at most ``depth`` of in advance, in order.

    What taking them raises is raised here, after the items before it. Closing this generator ends the thread, once the item
    under way is there, and closes ``items`` where it is a generator: none of it outlives this.
    """
    queue: _Queue[T] = _Queue(depth)
    thread = threading.Thread(target=queue.fill, args=(items,), name=name, daemon=True)
    thread.start()
    try:
        yield from queue.drain()
    finally:
        queue.close()
        thread.join()


class _Queue(Generic[T]):
    """A bounded queue with an end; the filling side stops when the other side has closed it."""

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._items: deque[T] = deque()
        self._condition = threading.Condition()
        self._ended = self._closed = False
        self._error: BaseException | None = None

    def fill(self, items: Iterable[T]) -> None:
        error: BaseException | None = None
        try:
            for item in items:
                if not self._put(item):
                    break
        except BaseException as raised:  # noqa: BLE001 - it is raised where the items are needed
            error = raised
        finally:
            if isinstance(items, Generator):
                items.close()
        with self._condition:
            self._error, self._ended = error, True
            self._condition.notify_all()

    def _put(self, item: T) -> bool:
        with self._condition:
            self._condition.wait_for(lambda: len(self._items) < self._depth or self._closed)
            if not self._closed:
                self._items.append(item)
                self._condition.notify_all()
            return not self._closed

    def drain(self) -> Generator[T, None, None]:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._items or self._ended)
                if not self._items:
                    if self._error is not None:
                        raise self._error
                    return
                item = self._items.popleft()
                self._condition.notify_all()
            yield item
            del item  # a picture must not live as long as its successor takes

    def close(self) -> None:
        with self._condition:
            self._closed = True
            self._condition.notify_all()
