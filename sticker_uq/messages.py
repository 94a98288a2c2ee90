# SPDX-License-Identifier: Apache-2.0
"""The words of the cell's messages: English text of every code of a :class:`sticker_uq.scene.Reason`, of logs and of gate
block reasons.

The gate, the policy and the nodes hand over codes and values. Logs, reports, pictures, ``sticker-uq audit`` and the ``text``
fields of ROS messages are rendered here, at the edge. The operator's page has words of its own for the same codes
(``console/page/strings.js``). To reword a message, change it here, and there if the page should follow.

``{value}``, ``{limit}`` and ``{subject}`` of a template stand for these fields of the reason, ``{x1}`` to ``{y2}`` for its box,
any other name for one of its ``values``. The subject and a value ``signal`` have words in ``SUBJECTS``. A value ``detail`` needs
no place in the template: it follows after a colon.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import IntFlag
from string import Formatter

from sticker_uq.scene import METRICS, Reason


class BlockReason(IntFlag):
    """Why the gate is closed, the bits of ``GateState.REASON_*``; :data:`BLOCK_REASONS` has the words."""

    NONE = 0
    NO_SCENE = 1
    STALE_SCENE = 2
    FAILED_SCENE = 4
    IMPLAUSIBLE_SCENE = 8
    INCONSISTENT = 16
    UNCERTAIN = 32
    NOTHING_TO_REMOVE = 64
    WAITING_FOR_OPERATOR = 128
    HELD = 256
    ARM_FAILED = 512
    VERIFYING = 1024
    FAULT = 2048
    CONTRADICTED = 4096
    NOT_ACTIVE = 8192
    STAMP_ORDER = 16384
    FROZEN_IMAGE = 32768
    EXPOSURE = 65536
    SOURCE_CHANGED = 131072
    MODEL_CHANGED = 262144
    CLOCK = 524288
    POSE = 1048576
    ASSUMPTION = 2097152
    UNEXPLAINED = 4194304
    AUDIT = 8388608
    SECOND_GATE_PUBLISHER = 16777216
    UNKNOWN_GATE_PUBLISHER = 33554432
    PANEL = 67108864
    UNCALIBRATED = 134217728
    # 268435456 was SECOND_VIEW until 0.3.0: it stays reserved
    SECOND_IMAGE_PUBLISHER = 536870912
    SECOND_SCENE_PUBLISHER = 1073741824

    @property
    def codes(self) -> tuple[str, ...]:
        """The message codes of all block reasons in here, as :data:`BLOCK_REASONS` names them."""
        return tuple(str(bit.name).lower() for bit in self)


BLOCK_REASONS = {
    "no_scene": "no scene received yet",
    "stale_scene": "the newest scene is too old",
    "failed_scene": "perception failed",
    "implausible_scene": "the scene is implausible",
    "stamp_order": "image timestamps out of order",
    "frozen_image": "the camera image is frozen",
    "exposure": "the image is too dark or too bright",
    "source_changed": "the camera has changed",
    "model_changed": "the detector or the policy has changed",
    "clock": "the clock is implausible",
    "pose": "pose of an object unknown",
    "inconsistent": "too few consecutive scenes agree",
    "uncertain": "an object or the scene is too uncertain",
    "unexplained": "a sticker may have been missed",
    "panel": "a monitor of the panel objects",
    "nothing_to_remove": "no sticker to remove",
    "waiting_for_operator": "waiting for the operator",
    "held": "held",
    "arm_failed": "the arm is not ready",
    "verifying": "verifying the removal",
    "fault": "fault",
    "contradicted": "a newer scene contradicts the permit",
    "not_active": "not active",
    "assumption": "the policy does not hold here",
    "uncalibrated": "the policy guarantees nothing",
    "audit": "what happens cannot be recorded",
    "second_gate_publisher": "another supervisor publishes the gate",
    "unknown_gate_publisher": "another gate publisher cannot be received",
    "second_image_publisher": "not exactly one publisher offers the camera's images",
    "second_scene_publisher": "another detector publishes scenes",
}
"""Why the gate is closed, by the names of ``GateState.REASON_*`` in lower case; the order in which they are listed."""

BLOCK_ADVICE = {
    "no_scene": "wait for the first image; if none comes, see `detector: images` in `/diagnostics`: the topic and whether "
    "anybody publishes it",
    "stale_scene": "check that images arrive (`detector: images`) and how long one takes (`detector: perception`); a slow "
    "machine needs fewer `passes`, a smaller model, or a higher `max_scene_age_s`; kill a detector that hangs; timestamps behind "
    "the clock: synchronise the camera (chrony, PTP), or let its driver stamp with the time of arrival",
    "failed_scene": "read `last_error` of `detector: perception`; an image that cannot be decoded comes from the camera's "
    "driver (encoding, size), a lost detector is restarted with `respawn:=true`",
    "implausible_scene": "the detail names the value; check that detector and supervisor are of the same version, and that "
    "nothing else publishes `scene`",
    "stamp_order": "make the camera's driver stamp each image once, with rising times; a recording that is played in a loop "
    "goes back at its end",
    "frozen_image": "restart the camera or its driver; a simulated camera without noise needs `frozen_images: 0`",
    "exposure": "check lamp, lens cap and exposure time; the limits are `min_image_level`, `max_image_level`, "
    "`max_dark_share` and `max_saturated_share`",
    "source_changed": "one scene later the gate follows the new camera, and answers about places are forgotten; if it comes "
    "back, two cameras publish one topic, or its size, frame or calibration alternates",
    "model_changed": "one scene later the gate follows the new weights, settings or policy; if it comes back, two detectors "
    "publish `scene`",
    "clock": "synchronise the clocks of camera and cell (chrony, PTP); with `use_sim_time` something must publish `/clock`",
    "pose": "the detail names what is missing: `camera_info`, `camera_pose` or tf2, `lid_plane` or the topic `lid_pose`",
    "inconsistent": "wait; if it lasts, the scenes disagree about an object: check light, vibration and a limit that the "
    "object just meets; after `undecided_timeout_s` the operator is asked",
    "uncertain": "answer the question that follows; if it comes too often, replay a recording and read which limit blocked "
    "what, then train or calibrate on such laptops",
    "unexplained": "draw the sticker, or answer that no sticker is left; if clean lids keep being marked, train on them",
    "panel": "answer the question; the detail names the monitor and its score",
    "nothing_to_remove": "nothing: the lid is clean, or nothing on it may be removed",
    "waiting_for_operator": "answer the question on the operator page, or bring another workpiece",
    "held": "press `Release` on the operator page, or call `operate` with release, when nobody is at the arm any more",
    "arm_failed": "check that the arm's driver runs, publishes `arm/status` at 20 Hz and offers `remove_sticker` once; "
    "after `max_attempts` failed removals at one place the operator is asked",
    "verifying": "wait; the scenes must show that the sticker is gone, else the gate tries again or asks",
    "fault": "read the detail and the audit log, check the cell, then press `Reset the fault` on the operator page",
    "contradicted": "wait until the arm has stopped; the detail says what the newer scene shows",
    "not_active": "activate the supervisor (`ros2 lifecycle set /supervisor activate`); if `configure` failed, its log says "
    "which parameter or file",
    "assumption": "the detail says what differs from what the policy was made for: restore that, or calibrate again; after "
    "drift or failed spot checks find the cause, then press `Start again` on the operator page",
    "uncalibrated": "calibrate a policy (`sticker-uq calibrate`) and start the cell from its bundle; "
    "`allow_uncalibrated:=true` lets the arm move on limits that prove nothing",
    "audit": "free space on the disk, or correct the rights of `audit_folder`; the gate opens again when entries reach the "
    "disk",
    "second_gate_publisher": "stop one of the two supervisors, or give each cell its own `namespace` or ROS domain",
    "unknown_gate_publisher": "stop what else publishes `gate` (`ros2 topic info -v gate`), or wait 4 s after a supervisor "
    "died",
    "second_image_publisher": "stop all but one of the named nodes, or give each camera its own topic; a driver that was killed "
    "counts until its discovery lease has ended (Fast DDS: 20 s, with `config/fastdds.xml` 4 s)",
    "second_scene_publisher": "stop all but one of the named nodes, or give each cell its own `namespace` or ROS domain; a "
    "detector that was killed counts for 4 s",
}
"""What to do about each reason, for docs/howto/troubleshooting.md; the same names in the same order."""

LACKS = {
    "appearance": "what an object is",
    "outline": "where an object ends",
    "overlooked": "whether something was overlooked",
}
"""What may be missing in a picture of the laptop."""

_LACKED_BY = {
    **dict.fromkeys(
        (
            "sticker_probability",
            "logo_probability",
            "possible_sticker",
            "detection_rate",
            "few_passes",
            "shannon_entropy",
            "variation_ratio",
            "mutual_information",
            "risk",
        ),
        "appearance",
    ),
    **dict.fromkeys(("relative_total_variance", "relative_predictive_surface", "detected_twice"), "outline"),
    **dict.fromkeys(
        (
            "dil",
            "background_saliency",
            "unexplained_objectness",
            "missed_sticker_probability",
            "missed_place",
            "possible_stickers",
            "left_probability",
        ),
        "overlooked",
    ),
}


def lack_of(reason: Reason) -> str:
    """What the picture does not show where ``reason`` holds something back, one of :data:`LACKS`; empty: nothing."""
    return _LACKED_BY.get(
        reason.subject if reason.code in ("above_limit", "below_limit") else reason.code, ""
    )


PHASES = {
    "unknown": "unknown",
    "blocked": "blocked",
    "monitoring": "monitoring",
    "permitted": "open",
    "removing": "open, removing",
    "verifying": "verifying",
    "intervention": "waiting for the operator",
    "fault": "fault",
}
"""The states of the gate, by the names of ``GateState.STATE_*``."""

VERDICTS = {"unknown": "undecided", "remove": "remove", "keep": "keep", "ask": "ask"}
"""What was decided about an object, by the names of ``Verdict.VERDICT_*``."""

OUTCOMES = {
    "unknown": "undecided",
    "work": "a sticker may be removed",
    "ask": "the operator is asked",
    "clean": "clean",
    "blocked": "blocked: the image cannot be used",
}
"""What was decided about a scene, by the names of ``SceneDecision.OUTCOME_*``."""

LABELS = {"background": "background", "logo": "logo", "sticker": "sticker"}
"""The classes of the detector."""

ERROR_CODES = {
    "none": "success",
    "unknown": "unknown error",
    "permit_revoked": "permit revoked",
    "stale_permit": "no valid permit",
    "operator_abort": "cancelled by an operator",
    "timeout": "motion timed out",
    "motion_failed": "motion failed",
    "invalid_goal": "invalid goal",
    "not_stopped": "the arm could not be stopped",
}
"""How a removal ended, by the names of ``RemoveSticker.Result.ERROR_*``."""

ANSWERS = {
    "unknown": "unknown",
    "remove": "remove it",
    "keep": "leave it alone",
    "not_there": "nothing is there",
    "missed": "a missed sticker",
}
"""What an operator says about an object, by the names of ``ObjectAnswer.ANSWER_*``."""

SCENE_ANSWERS = {
    "none": "nothing",
    "rescan": "look again",
    "skip_laptop": "leave this laptop to the operator",
    "fault": "something is wrong",
    "clean": "no sticker is left",
}
"""What an operator says about the whole scene, by the names of ``ResolveIntervention.SCENE_*``."""

MEASURES = {
    "sticker_probability": "probability of sticker",
    "logo_probability": "probability of logo",
    "probability": "probability of a class",
    "decision_threshold": "decision threshold",
    "complete_localization": "complete localization",
    "background_localization": "background localization",
    "left_probability": "highest probability of sticker left alone",
    "detection_rate": "share of the passes that detected it",
    **{name: metric.words for name, metric in METRICS.items()},
    "risk": "risk of wrong removal",
    "logo_overlap": "overlap with a possible logo",
    "dil": "distinctive localization",
    "background_saliency": "background saliency per pixel",
    "saliency": "saliency per pixel",
    "unexplained_objectness": "objectness that no box explains",
    "novelty": "novelty of the scene",
    "missed_sticker_probability": "probability of a missed sticker",
    "scene_distance": "distance of the scene from the training pictures",
    "object_novelty": "novelty of the object",
    "mean_level": "mean grey level",
    "dark_share": "share of dark pixels",
    "saturated_share": "share of saturated pixels",
    "noise": "image noise",
    "sharpness": "image sharpness",
    "score": "mean probability of the objects",
    "objects": "number of objects",
    "unstable": "number of objects in too few passes",
    "unstable_share": "share of objects in too few passes",
}
"""What is measured of an object, a scene or an image."""

SUBJECTS = {**MEASURES, **LABELS, **ERROR_CODES, **PHASES, **LACKS}
"""The words of ``Reason.subject``; what is not in here, such as the name of a monitor, stands for itself."""

MESSAGES = {
    **BLOCK_REASONS,
    # a value against its limit
    "above_limit": "{subject} {value} is above the limit {limit}",
    "below_limit": "{subject} {value} is below the limit {limit}",
    "within_limit": "{subject} {value} is within the limit {limit}",
    "reaches_limit": "{subject} {value} reaches the limit {limit}",
    "not_measured": "{subject} could not be measured",
    # verdicts
    "measurement_invalid": "measurement invalid: box or probabilities are not finite or have no area",
    "no_sticker": "not a sticker: probability {value}, notable from {limit}",
    "possible_sticker": "it may be a sticker: probability {value}, notable from {limit}",
    "few_passes": "too few passes detected it: {count}",
    "detected_twice": "one pass detected it twice: it may be two objects",
    "monitor_objects": "monitor {subject} objects: score {value}, limit {limit}",
    "monitor_agrees": "monitor {subject} agrees: score {value}, limit {limit}",
    "monitor_says_no_sticker": "monitor {subject} says that it is no sticker: score {value}, limit {limit}",
    "operator_removes": "an operator said to remove it",
    "operator_keeps": "an operator said to leave it alone",
    "operator_sees_nothing": "an operator said that nothing is there",
    "operator_says_clean": "an operator said that no sticker is left",
    "operator_drew": "an operator drew a sticker that was not detected",
    "operator_drew_on_logo": "an operator drew a sticker where a logo is detected now",
    "operator_answers_conflict": "two answers fit it: to remove it and to leave it alone",
    "removal_incomplete": "its removal was not completed",
    # scenes
    "perception_failed": "the image could not be assessed",
    "perception_restricted": "perception is restricted",
    "scenes_disagree": "the scenes have disagreed for {seconds} s",
    "possible_stickers": "possible stickers that too few passes detected: {count}",
    "missed_place": "a sticker may have been missed at x {x1} to {x2} px, y {y1} to {y2} px: {subject} {value}, limit {limit}",
    "novel_place": "something novel at x {x1} to {x2} px, y {y1} to {y2} px: {subject} {value}, limit {limit}",
    "no_novelty_network": "{subject} could not be measured: there is no novelty network for these weights, or it is too weak; "
    "`sticker-uq dil learn` makes one, `unmeasured_novelty: release` in the policy goes without",
    "unfamiliar_scene": "the scene is unlike those the policy was made from: {signal} {measured}, usual {low} to {high}",
    "spot_check": "spot check of the policy: mark everything that is to be removed",
    # what the policy was made for
    "policy_other_weights": "the policy was made for weights {expected}, not {found}",
    "policy_other_settings": "the policy was made for perception settings {expected}, not {found}: calibrate again with these",
    "policy_other_device": "the policy was made on {expected}, not {found}: calibrate again on this device, or set the "
    "detector's device and precision to those",
    "policy_other_panel": "the policy was made for the panel of monitors {expected}, not {found}",
    "policy_other_camera": "the policy was made for camera {expected}, not {found}",
    "policy_other_image_size": "the policy was made for images of {expected} px, not {found} px",
    "policy_expired": "the policy was valid until {day}",
    "drift": "{subject} has changed since the policy was made: workpieces {count}, false alarm probability {rate}",
    "wrong_removal": "wrong removals: {count} of {checks} spot checks, limit {limit}; false alarm probability {rate}",
    "missed_sticker": "missed stickers: {count} of {checks} spot checks, limit {limit}; false alarm probability {rate}",
    # images
    "scene_unreadable": "the scene message cannot be read",
    "scene_not_judged": "the scene could not be judged",
    "detector_lost": "the detector has died or gone",
    "image_unusable": "the image cannot be used",
    "values_not_finite": "the scene holds values that are not finite",
    "value_out_of_range": "the scene says that {subject} is {measured}: expected {low} to {high}",
    "image_without_size": "the image size is {width} x {height} px",
    "image_without_digest": "image_digest is empty",
    "decision_inconsistent": "the decision allows the removal of something that is no stable sticker",
    "image_publishers": "{count} publishers of the camera's images: {names}",
    "image_publishers_unknown": "the detector does not say which node publishes the camera's images (image_publishers is empty)",
    "image_late": "the image timestamp is {seconds} s behind the clock: the camera's clock is behind, or its driver or the "
    "detector is slow",
    "stamp_since_start": "the image timestamp is {seconds} s: the camera's clock counts from its start, not from 1970, "
    "or use_sim_time is set for it alone",
    "images_apart": "the last image was {seconds} s old when the next scene came, and none may be older than {limit} s "
    "(max_scene_age_s)",
    "image_repeats": "consecutive images with identical pixels: {count}",
    "stamp_invalid": "the image timestamp is zero or negative",
    "stamp_unchanged": "the image timestamp did not change",
    "stamp_backwards": "the image timestamps went back by {seconds} s",
    "stamp_in_future": "the image timestamp lies {seconds} s in the future",
    "clock_zero": "the time is 0: use_sim_time is set and nothing publishes /clock",
    "clock_stands": "the clock stands still: with use_sim_time, what publishes /clock has stopped",
    "clock_ahead": "the clock jumped ahead by {seconds} s",
    "clock_back": "the clock jumped back by {seconds} s",
    "image_source_changed": "images of {before} became images of {after}",
    "calibration_changed": "the camera calibration has changed",
    "weights_changed": "other weights",
    "settings_changed": "other perception settings",
    "panel_changed": "another panel of monitors",
    "policy_changed": "another policy",
    # poses
    "calibration_unknown": "the calibration of the cell is not known",
    "calibration_other_size": "the camera calibration is for images of {expected} px, not {found} px",
    "camera_info_missing": "no CameraInfo received",
    "camera_info_other_frame": "CameraInfo is of frame {found}, the image of {expected}",
    "camera_info_apart": "CameraInfo and image are {seconds} s apart",
    "lid_unknown": "pose of the lid unknown: lid_plane is empty and no lid_pose was received",
    "frame_pose_unknown": "pose of {frame} unknown",
    "object_not_located": "object {object} cannot be located",
    # questions to the operator
    "objects_to_decide": "objects to decide: {count}",
    "monitors_object": "monitors object: {names}",
    "picture_lacks": "the picture does not show {subject}",
    "workpiece_left": "this workpiece is left to the operator",
    # arm and permit
    "goal_rejected": "the arm rejected the goal",
    "arm_reported": "the arm reported: {subject}",
    "arm_stopped": "somebody stopped the arm",
    "arm_stopping": "waiting for the arm to stop",
    "arm_silent": "no heartbeat from the arm",
    "arm_server_lost": "the arm's action server is gone",
    "arm_not_stopped": "the arm reports that it could not be stopped in goal {goal}",
    "arm_does_not_stop": "the arm did not report the end of goal {goal} within {seconds} s",
    "removal_stopped": "the removal was stopped",
    "removal_tried": "attempts: {count}",
    "removal_unverified": "the scenes did not show within {seconds} s whether the sticker is gone",
    "sticker_still_there": "the sticker is still there after its removal",
    "permit_not_renewed": "the permit was not renewed in time",
    "gate_settings_changed": "the settings of the gate have changed",
    "goal_not_accepted": "the arm did not accept the goal within {seconds} s",
    "removal_too_long": "the removal took more than {seconds} s",
    "logo_at_object": "a logo is detected at the place of the object",
    "object_not_removable": "the object may not be removed any more",
    "object_not_found": "the object was not found again",
    "scene_doubtful": "the scene as a whole is uncertain",
    "object_covered": "another {subject} covers the object",
    "neighbour_moved": "the {subject} beside the object has moved",
    "another_workpiece": "another workpiece lies in the cell",
    # the end of a workpiece
    "no_sticker_left": "no sticker is left",
    "operator_left_workpiece": "{person} left it to the operator",
    # faults
    "internal_error": "internal error",
    "operator_reported_fault": "{person} reported that something is wrong",
    "last_run_faulted": "the last run ended in a fault",
    "last_run_asked": "the last run ended while an operator was asked",
    # what outside of scenes and arm closes the gate
    "audit_write_failed": "the audit log cannot be written",
    "audit_behind": "the disk is behind: an audit entry has waited for {seconds} s",
    "other_gate_publishers": "the gate is published by another supervisor: {names}",
    "gate_publishers_not_received": "other publishers of {topic} that cannot be received: {count} of {names}",
    "scene_publishers": "{count} publishers of {topic}: {names}",
    "policy_uncalibrated": "no permit on policy {policy}, which has no guarantee: make one with `sticker-uq calibrate`, or set "
    "allow_uncalibrated",
    "policy_releases_unfamiliar": "no permit on policy {policy}, which releases without novelty (unmeasured_novelty: "
    "release), also in scenes that the detector was not made for: learn a novelty network and calibrate with it, or set "
    "allow_uncalibrated",
    "listening_first": "listening for other supervisors for {seconds} s first",
    # replies
    "gate_stands": "gate: {subject}",
    "answer_taken": "answer taken",
    "fault_reset": "the fault is reset",
    "assumption_reset": "the assumption monitor is restarted",
    "goal_given_up": "goal {goal} was lost with the arm's server and is given up",
    "goal_awaited": "the gate stays closed until the arm reports the end of goal {goal}",
    "not_configured": "{node} is not configured",
    "person_missing": "person is empty: expected the name of the operator",
    "request_not_open": "request {request} is not open",
    "camera_changed_since": "the camera has changed since the question was asked: answer for the scene, e.g. rescan",
    "answer_empty": "the answer is empty: answer the objects, draw what was missed or answer for the scene",
    "object_unanswered": "no answer about an object in question",
    "answer_unknown": "the answer about an object is unknown",
    "scene_answer_with_removal": "an answer for the whole image excludes every removal: give one of the two",
    "sticker_not_mentioned": "what looks like a sticker at x {x1} to {x2} px, y {y1} to {y2} px is not mentioned: if the answer "
    "means it too, list its box in not_stickers",
    "answers_differ": "different answers about the same place: give one answer per place",
    "scene_answer_unknown": "scene_answer {number} is unknown",
    "command_unknown": "command {number} is unknown: expected hold (1), release (2) or reset (3)",
    "box_without_area": "a box has no area or is not finite",
    "box_outside_image": "a box lies outside the image of {width} x {height} px",
    "no_fault": "there is no fault to reset",
    "supervisor_missing": "the supervisor is not there",
    "supervisor_timeout": "the supervisor did not answer in time",
    "supervisor_busy": "the supervisor has {count} requests to answer: try again",
    "request_too_long": "too much at once: at most {answers} answers, and {characters} characters of a name",
    "model_serves": "{model} (weights {hash}) replaces {old_model} (weights {old_hash})",
    "model_kept": "{model} (weights {hash}) stays in use",
    "model_loading": "a model is being loaded already: try again",
    "model_unloaded": "{node} was cleaned up meanwhile",
    "model_request_invalid": "the request cannot be served",
}
"""The words of every code that an operator may see; the operator's page has the same codes."""

LOG_LINES = {
    "phase_changed": "{before} -> {after}",
    "still_blocked": "BLOCKED, for other reasons than before",
    "permit_granted": "permit {goal} for object {object} of decision {decision}",
    "permit_revoked": "permit {goal} revoked",
    "object_removed": "object {object} of decision {decision} is gone",
    "attempt_failed": "attempt {count} of {most} failed",
    "goal_unknown": "the arm reported the end of goal {goal}, which was not expected",
    "request_opened": "request {request} opened",
    "request_answered": "{person} answered {request}",
    "request_overdue": "request {request} is not answered yet; the gate stays closed",
    "workpiece_arrived": "workpiece {workpiece} lies in the cell",
    "workpiece_done": "workpiece {workpiece} is done",
}
"""The beginnings of log lines about what the gate did; the reasons follow."""

_TEMPLATES = MESSAGES | LOG_LINES


def text_of(reason: Reason) -> str:
    """``reason`` in English words, one :func:`printable` sentence without a full stop. Of an unknown code: the code with its
    values.
    """
    fields = dict(reason.values)
    detail = fields.pop("detail", "")
    template = _TEMPLATES.get(reason.code)
    if template is None:
        known = {"subject": reason.subject, **fields}
        text = " ".join([reason.code, *(f"{name}={value}" for name, value in known.items() if value != "")])
    else:
        value, limit = _pair(reason.value, reason.limit)
        words = {"value": value, "limit": limit, "subject": SUBJECTS.get(reason.subject, reason.subject)}
        for name, edge in zip(("x1", "y1", "x2", "y2"), reason.box or (), strict=False):
            words[name] = f"{edge:.0f}"
        for name, item in fields.items():
            words[name] = (
                _number(item)
                if isinstance(item, float)
                else SUBJECTS.get(item, item)
                if name == "signal"
                else item
            )
        text = template.format_map(_Fields(words))
    return printable(f"{text}: {detail}" if detail else text)


def printable(text: str) -> str:
    """``text`` from outside as it may stand in a line of a log or a terminal.

    Control characters, line breaks, characters that turn the direction of writing and lone surrogates are escaped as in Python
    (``\\x1b``).
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def texts_of(reasons: Iterable[Reason]) -> str:
    """Messages of all ``reasons`` in one line."""
    return "; ".join(map(text_of, reasons))


def gate_text(block_reasons: Iterable[str], details: Iterable[Reason]) -> str:
    """Message of why the gate is closed, one line: its block reasons in words, then their details. Empty for an open gate."""
    names = set(block_reasons)
    closed = "; ".join(words for name, words in BLOCK_REASONS.items() if name in names)
    why = texts_of(details)
    return f"{closed}: {why}" if why else closed


def log_line(reasons: Iterable[Reason]) -> str:
    first, *rest = reasons
    return f"{text_of(first)}: {texts_of(rest)}" if rest else text_of(first)


def placeholders(template: str) -> frozenset[str]:
    """The names in braces of a message's ``template``."""
    return frozenset(name for _, name, _, _ in Formatter().parse(template) if name)


class _Fields(dict[str, str]):
    """What a message lacks is shown as its name: a message must come out whatever is wrong with it."""

    def __missing__(self, name: str) -> str:
        return "{" + name + "}"


def _number(value: float, digits: int = 3) -> str:
    if math.isnan(value):
        return "not measured"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.{digits}g}"


def _pair(value: float, limit: float) -> tuple[str, str]:
    """Two numbers with as many digits as it takes to tell them apart."""
    if math.isnan(value) and math.isnan(limit):
        return _number(value), _number(limit)
    pairs = ((_number(value, digits), _number(limit, digits)) for digits in range(3, 8))
    return next(
        (pair for pair in pairs if pair[0] != pair[1] or value == limit),
        (_number(value, 7), _number(limit, 7)),
    )
