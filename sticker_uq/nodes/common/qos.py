# SPDX-License-Identifier: Apache-2.0
"""The quality of service of every topic, in one place. Depths are explicit: the default depth differs between middlewares."""

from rclpy.duration import Duration
from rclpy.qos import DurabilityPolicy, HistoryPolicy, LivelinessPolicy, QoSProfile, ReliabilityPolicy

#: Liveliness lease that supervised publishers offer, s. The middleware asserts it from its own thread, which a busy interpreter
#: does not delay.
LIVELINESS_OFFERED_S = 0.1
#: Liveliness lease that their subscriptions request, s: twice the offered one, so that one assertion may be lost.
LIVELINESS_REQUESTED_S = 0.2


def _keep_last(
    depth: int, best_effort: bool = False, latched: bool = False, alive_s: float = 0.0
) -> QoSProfile:
    profile = QoSProfile(
        history=HistoryPolicy.KEEP_LAST,
        depth=depth,
        reliability=ReliabilityPolicy.BEST_EFFORT if best_effort else ReliabilityPolicy.RELIABLE,
        durability=DurabilityPolicy.TRANSIENT_LOCAL if latched else DurabilityPolicy.VOLATILE,
    )
    if alive_s:
        profile.liveliness = LivelinessPolicy.AUTOMATIC
        profile.liveliness_lease_duration = Duration(seconds=alive_s)
    return profile


#: Publishers of images: reliable, so that reliable and best-effort subscriptions match.
IMAGES = _keep_last(2)
#: Subscriptions to images: only the newest counts; a longer queue would mean work on old images.
NEWEST_IMAGE_RELIABLE = _keep_last(1)
NEWEST_IMAGE_BEST_EFFORT = _keep_last(1, best_effort=True)
#: Subscriptions of the recorder to images: every one counts, and the disk may be slow for a moment.
RECORDED_IMAGE_RELIABLE = _keep_last(10)
RECORDED_IMAGE_BEST_EFFORT = _keep_last(10, best_effort=True)
#: Scenes, topics derived from them and annotated images: a slow subscriber gets the newest few, never a long backlog.
RELIABLE = _keep_last(5)
#: Image checks: none may be lost, because each can close the gate. With liveliness.
IMAGE_CHECKS = _keep_last(50, alive_s=LIVELINESS_OFFERED_S)
IMAGE_CHECKS_WATCH = _keep_last(50, alive_s=LIVELINESS_REQUESTED_S)
#: Subscription of the supervisor to scenes: only the newest counts.
NEWEST_SCENE = _keep_last(1)
#: State for late joiners: intervention request, workpiece, label info.
LATCHED = _keep_last(1, latched=True)
#: What each of several publishers said last.
CONSOLES = _keep_last(20, latched=True)
#: Publisher of the gate: state for late joiners, with liveliness.
GATE = _keep_last(1, latched=True, alive_s=LIVELINESS_OFFERED_S)
#: Subscription of an arm to the gate, which notices the death of the supervisor.
GATE_SUBSCRIPTION = _keep_last(1, latched=True, alive_s=LIVELINESS_REQUESTED_S)
#: Subscription of a supervisor to the gate, to detect other publishers: its own messages must not replace theirs.
GATE_WATCH = _keep_last(10, latched=True)
#: Heartbeat of the arm: publisher and subscription.
ARM_STATUS = _keep_last(5, alive_s=LIVELINESS_OFFERED_S)
ARM_STATUS_WATCH = _keep_last(5, alive_s=LIVELINESS_REQUESTED_S)
#: /diagnostics, as the aggregator expects it.
DIAGNOSTICS = _keep_last(10)


def describe(profile: QoSProfile) -> str:
    """``profile`` in words for logs and diagnostics, e.g. ``best effort, volatile``."""
    return f"{_words(profile.reliability)}, {_words(profile.durability)}"


def _words(policy: ReliabilityPolicy | DurabilityPolicy) -> str:
    return str(policy.name).replace("_", " ").lower()
