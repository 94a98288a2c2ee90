# SPDX-License-Identifier: Apache-2.0
"""A ROS domain in which no other process of this machine takes part: for tests, demos and simulations. Without ROS."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
from collections.abc import Iterator

import domain_coordinator

_PARTICIPANTS = 120
"""So many participants of one machine have ports of their own in a domain."""
_numbers = itertools.count(os.getpid())


def taken(domain: int) -> bool:
    """Whether a process on this machine takes part in the ROS domain ``domain``, as a DDS participant.

    It listens for unicast discovery at UDP port 7410 + 250 * domain + 2 * (its number), in every DDS
    (OMG DDSI-RTPS 2.5, section 9.6.2.3). What takes part through shared memory alone is not seen.
    """
    first = 7410 + 250 * domain
    return any(_port_used(first + 2 * number) for number in range(_PARTICIPANTS))


def _port_used(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            one.bind(("", port))
        except OSError:
            return True
    return False


@contextlib.contextmanager
def free_domain() -> Iterator[int]:
    """For a cell, a ROS domain from 1 to 100 in which nobody of this machine takes part; kept from other callers until the
    context ends.

    Each call begins at another one: a process that takes long to die does not talk to what comes next. Other programs keep
    off a domain only if they reserve it as this function does, with ``domain_coordinator``.

    Raises RuntimeError when every domain is taken.
    """
    reserved = contextlib.ExitStack()
    try:
        yield reserved.enter_context(domain_coordinator.domain_id(_next_free))
    finally:
        reserved.close()  # of an error it hears nothing: domain_coordinator would take an OSError for a taken port


def _next_free() -> int:
    for domain in (1 + number % 100 for number in itertools.islice(_numbers, 100)):
        if not taken(domain):
            return domain
    raise RuntimeError("a DDS participant of this machine is in each of the ROS domains 1 to 100")
