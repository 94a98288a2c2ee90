# SPDX-License-Identifier: Apache-2.0
"""The Fast DDS profile of a process: UDP without shared memory, unless the user sets a profile. Without ROS."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sticker_uq.io.share import share_folder

PROFILE_VARIABLES = ("FASTDDS_DEFAULT_PROFILES_FILE", "FASTRTPS_DEFAULT_PROFILES_FILE")
"""Environment variables from which Fast DDS reads its profile; older versions know only the second one."""


def transport_environment(
    environment: Mapping[str, str], middleware: str = "rmw_fastrtps_cpp"
) -> dict[str, str]:
    """Environment variables of a cell's processes for Fast DDS, needed before ``rclpy.init``, by ``environment`` and
    middleware.

    Empty for a user's own profile and for another middleware. Otherwise ``config/fastdds.xml``: no shared memory, in which a
    killed process can leave a lock that blocks the others for seconds, and socket buffers large enough for images.

    For the discovery range LOCALHOST rmw_fastrtps adds a shared-memory transport to whatever the profile has. Such a process
    gets a profile that is bound to the loopback interface and the range SYSTEM_DEFAULT, for which rmw_fastrtps adds nothing.
    With ROS_STATIC_PEERS, which are not on the loopback interface, the range stays.

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
