# SPDX-License-Identifier: Apache-2.0
"""The status of the gate and of its policy, in the words of /diagnostics and the log."""

import math
from collections.abc import Mapping

from sticker_uq.gate import GateController, Policy
from sticker_uq.gate.state import Phase
from sticker_uq.messages import gate_text, text_of
from sticker_uq.nodes.common.diagnostics import Level, PartReport
from sticker_uq.nodes.supervisor.cell_stop import StopState

COUNTS = ("scenes", "unreadable_scenes", "permits", "removals", "removals_failed", "requests")
"""What is counted from configuration on."""
_LEVELS = {Phase.FAULT: Level.ERROR, Phase.BLOCKED: Level.WARN, Phase.INTERVENTION: Level.WARN}


def gate_report(core: GateController, stop: StopState, counts: Mapping[str, int]) -> PartReport:
    """Phase, policy, its monitoring and ``counts``, once configured."""
    state, policy, watch = core.state, core.policy, core.watch
    age_ms = (state.now_ns - state.scene.stamp_ns) / 1e6 if state.scene is not None else None
    holds = "holds so far" if watch.active else "not watched"
    values = {
        "phase": state.phase.name,
        "reasons": int(state.reasons),
        "image_age_ms": age_ms,
        "workpiece": state.workpiece_id or None,
        "arm_ready": state.arm_ready,
        "stop": stop.value,
        "stop_demanded": int(stop is not StopState.NOT_DEMANDED),
        "policy_hash": policy.hash[:12],
        "assumption": text_of(state.assumption) if state.assumption else holds,
        "drift": None if math.isnan(watch.evidence) else watch.evidence,
        "watched_workpieces": watch.workpieces,
        "spot_checks": watch.spot_checks,
        **counts,
    }
    text = gate_text(state.reasons.codes, state.details)
    return PartReport(_LEVELS.get(state.phase, Level.OK), text or state.phase.name, values)


def policy_report(policy: Policy) -> PartReport:
    """What the policy promises, and what it was made for; a warning where it promises nothing, or releases without novelty."""
    made_for = policy.validity
    values = {
        "hash": policy.hash[:12],
        "guarantee": str(policy.guarantee or "") or None,
        "model_hash": made_for.model_hash[:12] or None if made_for else None,
        "valid_until": made_for.until if made_for else None,
    }
    if policy.guarantee is None:
        return PartReport(Level.WARN, "the policy has no guarantee: `sticker-uq calibrate` makes one", values)
    if policy.unmeasured_novelty == "release":
        unmeasured = f"{policy.guarantee}; also releases in unfamiliar scenes: novelty is not measured"
        return PartReport(Level.WARN, unmeasured, values)
    return PartReport(Level.OK, str(policy.guarantee), values)


def unconfigured_report() -> PartReport:
    configured = gate_report(GateController(Policy()), StopState.NOT_DEMANDED, dict.fromkeys(COUNTS, 0))
    return PartReport(Level.WARN, "not configured", dict.fromkeys(configured.values))


def policy_line(policy: Policy) -> str:
    parts = [policy.hash[:12], str(policy.guarantee or "no guarantee")]
    if policy.validity is not None:
        parts.append(f"for weights {policy.validity.model_hash[:12] or 'of any kind'}")
        parts += [f"valid until {policy.validity.until}"] if policy.validity.until else []
    return ", ".join(parts)
