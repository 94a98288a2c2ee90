"""The quality of service of every topic, in one place. Depths are explicit: the default depth differs between
middlewares.
"""

from __future__ import annotations

from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy


def _keep_last(depth: int, reliability: ReliabilityPolicy, durability: DurabilityPolicy) -> QoSProfile:
    return QoSProfile(
        history=HistoryPolicy.KEEP_LAST, depth=depth, reliability=reliability, durability=durability
    )


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
#: What is known about each image as it arrives: none may be lost, for each can close the gate.
IMAGE_CHECKS = _keep_last(50, ReliabilityPolicy.RELIABLE, DurabilityPolicy.VOLATILE)
#: Scenes on the side that decides: only the newest counts.
NEWEST_SCENE = _keep_last(1, ReliabilityPolicy.RELIABLE, DurabilityPolicy.VOLATILE)
#: State that a late joiner must see at once: gate, intervention request, workpiece, label info.
LATCHED = _keep_last(1, ReliabilityPolicy.RELIABLE, DurabilityPolicy.TRANSIENT_LOCAL)
#: The gate as a supervisor watches it for others: its own messages must not push theirs out.
GATE_WATCH = _keep_last(10, ReliabilityPolicy.RELIABLE, DurabilityPolicy.TRANSIENT_LOCAL)
#: /diagnostics, as the aggregator expects it.
DIAGNOSTICS = _keep_last(10, ReliabilityPolicy.RELIABLE, DurabilityPolicy.VOLATILE)


def describe(profile: QoSProfile) -> str:
    """``profile`` in words for logs and diagnostics, e.g. ``best effort, volatile``."""
    return f"{_words(profile.reliability)}, {_words(profile.durability)}"


def _words(policy: ReliabilityPolicy | DurabilityPolicy) -> str:
    return str(policy.name).replace("_", " ").lower()
