"""The quality of service of every topic, in one place. Depths are explicit: the default depth differs between
middlewares.
"""

from __future__ import annotations

from rclpy.duration import Duration
from rclpy.qos import DurabilityPolicy, HistoryPolicy, LivelinessPolicy, QoSProfile, ReliabilityPolicy

#: The middleware of a publisher that must be missed says at least this often that its process lives, s; from a thread of its
#: own, so that an interpreter that is busy does not delay it.
LIVELINESS_OFFERED_S = 0.1
#: A publisher of which nothing was heard for this time is dead, s: longer than what is offered, so that one word may be lost.
LIVELINESS_REQUESTED_S = 0.2


def _keep_last(
    depth: int, reliability: ReliabilityPolicy, durability: DurabilityPolicy, alive_s: float = 0.0
) -> QoSProfile:
    profile = QoSProfile(
        history=HistoryPolicy.KEEP_LAST, depth=depth, reliability=reliability, durability=durability
    )
    if alive_s:
        profile.liveliness = LivelinessPolicy.AUTOMATIC
        profile.liveliness_lease_duration = Duration(seconds=alive_s)
    return profile


#: Images on the publishing side: reliable, so that readers of either kind are served.
IMAGES = _keep_last(2, ReliabilityPolicy.RELIABLE, DurabilityPolicy.VOLATILE)
#: Images on the receiving side: only the newest counts, a longer queue means work on old pictures.
NEWEST_IMAGE_RELIABLE = _keep_last(1, ReliabilityPolicy.RELIABLE, DurabilityPolicy.VOLATILE)
NEWEST_IMAGE_BEST_EFFORT = _keep_last(1, ReliabilityPolicy.BEST_EFFORT, DurabilityPolicy.VOLATILE)
#: Images on the recording side: every one counts, the disk may be slow for a moment.
RECORDED_IMAGE_RELIABLE = _keep_last(10, ReliabilityPolicy.RELIABLE, DurabilityPolicy.VOLATILE)
RECORDED_IMAGE_BEST_EFFORT = _keep_last(10, ReliabilityPolicy.BEST_EFFORT, DurabilityPolicy.VOLATILE)
#: Scenes, what is derived from them, pictures for people: a reader that is late gets the newest few, never a
#: long backlog.
RELIABLE = _keep_last(5, ReliabilityPolicy.RELIABLE, DurabilityPolicy.VOLATILE)
#: What is known about each image as it arrives: none may be lost, for each can close the gate. Its publisher must live.
IMAGE_CHECKS = _keep_last(50, ReliabilityPolicy.RELIABLE, DurabilityPolicy.VOLATILE, LIVELINESS_OFFERED_S)
IMAGE_CHECKS_WATCH = _keep_last(
    50, ReliabilityPolicy.RELIABLE, DurabilityPolicy.VOLATILE, LIVELINESS_REQUESTED_S
)
#: Scenes on the side that decides: only the newest counts.
NEWEST_SCENE = _keep_last(1, ReliabilityPolicy.RELIABLE, DurabilityPolicy.VOLATILE)
#: State that a late joiner must see at once: gate, intervention request, workpiece, label info.
LATCHED = _keep_last(1, ReliabilityPolicy.RELIABLE, DurabilityPolicy.TRANSIENT_LOCAL)
#: The gate on the side of the supervisor: state that a late joiner must see at once, from a process that must live.
GATE = _keep_last(1, ReliabilityPolicy.RELIABLE, DurabilityPolicy.TRANSIENT_LOCAL, LIVELINESS_OFFERED_S)
#: The gate as an arm obeys it, and misses it when its supervisor dies.
GATE_OBEYED = _keep_last(
    1, ReliabilityPolicy.RELIABLE, DurabilityPolicy.TRANSIENT_LOCAL, LIVELINESS_REQUESTED_S
)
#: The gate as a supervisor watches it for others: its own messages must not push theirs out.
GATE_WATCH = _keep_last(10, ReliabilityPolicy.RELIABLE, DurabilityPolicy.TRANSIENT_LOCAL)
#: The arm's word that it is there, on either side.
ARM_STATUS = _keep_last(5, ReliabilityPolicy.RELIABLE, DurabilityPolicy.VOLATILE, LIVELINESS_OFFERED_S)
ARM_STATUS_WATCH = _keep_last(
    5, ReliabilityPolicy.RELIABLE, DurabilityPolicy.VOLATILE, LIVELINESS_REQUESTED_S
)
#: /diagnostics, as the aggregator expects it.
DIAGNOSTICS = _keep_last(10, ReliabilityPolicy.RELIABLE, DurabilityPolicy.VOLATILE)


def describe(profile: QoSProfile) -> str:
    """``profile`` in words for logs and diagnostics, e.g. ``best effort, volatile``."""
    return f"{_words(profile.reliability)}, {_words(profile.durability)}"


def _words(policy: ReliabilityPolicy | DurabilityPolicy) -> str:
    return str(policy.name).replace("_", " ").lower()
