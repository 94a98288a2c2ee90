# SPDX-License-Identifier: Apache-2.0
"""The Fast DDS profile of a process (UDP without shared memory, unless the user sets one), and a ROS domain in which no other
process of this machine takes part, for tests, demos and simulations. Without ROS.
"""

import contextlib
import itertools
import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

import domain_coordinator

from sticker_uq.io.share import share_folder

PROFILE_VARIABLES = ("FASTDDS_DEFAULT_PROFILES_FILE", "FASTRTPS_DEFAULT_PROFILES_FILE")
"""Environment variables from which Fast DDS reads its profile; older versions know only the second one."""


def transport_environment(
    environment: Mapping[str, str], middleware: str = "rmw_fastrtps_cpp"
) -> dict[str, str]:
    """Environment variables for Fast DDS, needed before ``rclpy.init``, by ``environment`` and middleware.

    Empty for a user's own profile and for another middleware. Otherwise ``config/fastdds.xml``: no shared memory, in which a
    killed process can leave a lock that blocks the others for seconds, and socket buffers large enough for images.

    For the discovery range LOCALHOST rmw_fastrtps adds a shared-memory transport to whatever the profile has. Such a process gets
    a profile that is bound to the loopback interface and the range SYSTEM_DEFAULT, for which rmw_fastrtps adds nothing. With
    ROS_STATIC_PEERS, which are not on the loopback interface, the range stays.

    Raises :class:`~sticker_uq.scene.InvalidInput` when the configuration folder is not found.
    """
    if not middleware.startswith("rmw_fastrtps"):
        return {}
    config = share_folder() / "config"
    brought = {Path(value).resolve() for name in PROFILE_VARIABLES if (value := environment.get(name))}
    if brought - {(config / "fastdds.xml").resolve()}:
        return {}
    localhost = (
        environment.get("ROS_AUTOMATIC_DISCOVERY_RANGE", "").upper() == "LOCALHOST"
        or environment.get("ROS_LOCALHOST_ONLY") == "1"
    )
    if not localhost or environment.get("ROS_STATIC_PEERS"):
        return dict.fromkeys(PROFILE_VARIABLES, str(config / "fastdds.xml"))
    profile = dict.fromkeys(PROFILE_VARIABLES, str(config / "fastdds_localhost.xml"))
    superseded = {"ROS_LOCALHOST_ONLY": "0"} if "ROS_LOCALHOST_ONLY" in environment else {}
    return profile | superseded | {"ROS_AUTOMATIC_DISCOVERY_RANGE": "SYSTEM_DEFAULT"}


_PARTICIPANTS = 120
"""So many participants of one machine have ports of their own in a domain."""
_numbers = itertools.count(os.getpid())


def is_taken(domain: int) -> bool:
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
    """A ROS domain from 1 to 100 in which nobody on this machine takes part; kept from other callers until the context ends.

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
        if not is_taken(domain):
            return domain
    raise RuntimeError("a DDS participant of this machine is in each of the ROS domains 1 to 100")
