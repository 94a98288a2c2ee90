# SPDX-License-Identifier: Apache-2.0
"""Which ROS domains are free, by the ports at which DDS participants listen for discovery."""

import itertools
import socket

import pytest

from sticker_uq.cell import transport as domain
from sticker_uq.testing.bench import run_bench


def test_whoever_takes_part_is_seen(ros_domain):
    assert not domain.is_taken(ros_domain)
    with run_bench():
        assert domain.is_taken(ros_domain)


def test_a_free_domain_is_kept_from_others_until_the_end_and_from_an_error():
    with domain.free_domain() as first, domain.free_domain() as second:
        assert first != second
    with pytest.raises(OSError, match="of the body"), domain.free_domain():
        raise OSError("of the body")


def test_a_domain_with_a_participant_is_not_chosen(monkeypatch, ros_domain):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as participant:
        participant.bind(("", 7410 + 250 * ros_domain + 2 * 3))  # the fourth: the first three have left
        monkeypatch.setattr(domain, "_numbers", itertools.count(ros_domain - 1))
        with domain.free_domain() as free:
            assert free != ros_domain


def test_it_says_so_when_every_domain_is_taken(monkeypatch):
    monkeypatch.setattr(domain, "is_taken", lambda number: True)
    with pytest.raises(RuntimeError, match="domains 1 to 100"), domain.free_domain():
        pass
