/* SPDX-License-Identifier: Apache-2.0 */
// Every text of the page. To translate it, translate what stands to the right of the colons; what is in braces stays as it is.
// `messages` has the codes of sticker_uq/messages.py, `subjects` its subjects: a test compares them.
export const STRINGS = {
  lang: "en",
  title: "Sticker removal",
  states: {
    unknown: "No state", blocked: "Closed", monitoring: "Watching", permitted: "Open", removing: "Arm at work",
    verifying: "Checking", intervention: "Needs you", fault: "Fault", held: "Held", lost: "No contact",
  },
  meanings: {
    unknown: "It is not known what the cell does.", blocked: "The arm may not peel.", monitoring: "The arm waits while the cell looks.",
    permitted: "The arm may start at any moment.", removing: "The arm is peeling a sticker.", verifying: "The arm waits: is the sticker gone?",
    intervention: "The arm waits for your answer.", fault: "The arm may not peel.", held: "The arm may not peel.", lost: "",
  },
  lost: "No message from the supervisor. The arm must not move.",
  stale: "No contact with the cell",
  staleHint: "What lies behind this is old. Trust your eyes, not this page. It tries again by itself.",
  staleFor: "Last message {seconds} s ago",
  fault: "Fault. Look at the cell before you reset it.",
  alarmed: "The policy does not hold here. Find out what has changed before you reset it.",
  held: "HELD. Nothing is peeled until somebody presses Release.",
  picture: "Picture of the laptop",
  noPicture: "There is no picture",
  live: "Live",
  frozen: "The picture in question",
  notKept: "Live: the picture in question was not kept",
  noHeat: "Its heat map was not recorded",
  nothingAsked: "Nothing to decide",
  nothingAskedHint: "The cell asks here when it is not sure.",
  question: "The cell asks you",
  askedUnknown: "It is not known whether the cell asks",
  toLook: "Look at the whole picture. Draw every sticker that is still there, or say that no sticker is left.",
  object: "Looks like: {label}",
  labels: ["nothing known", "logo", "sticker"],
  verdicts: { remove: "peel", keep: "leave", ask: "", unknown: "" },
  answers: { remove: "Peel it", keep: "Leave it", not_there: "Nothing is there", missed: "Missed sticker: peel it" },
  details: "Details",
  sceneTitle: "Or one answer for the whole picture",
  scenes: { rescan: "Look again", clean: "No sticker is left", skip_laptop: "Leave this laptop to people", fault: "Something is wrong" },
  sceneHints: { rescan: "with new pictures", clean: "the laptop is finished", skip_laptop: "the arm does no more here", fault: "stop the cell" },
  layers: { boxes: "Boxes", hulls: "Unsure edges", heat: "Heat map", live: "Live picture" },
  draw: "Draw a missed sticker",
  pressDraw: "To draw a sticker, press Draw a missed sticker first",
  stopDrawing: "Stop drawing",
  unexplained: "missed?",
  drawHint: "Drag a box around the sticker",
  drawKeys: "Arrows move the box, Shift and arrows size it, Enter takes it, Escape drops it",
  tooSmall: "Too small. Drag from one corner of the sticker to the opposite one",
  takeBack: "Take back",
  send: "Send answer",
  sendScene: "Send: {answer}",
  hold: "HOLD",
  release: "Release",
  reset: "Reset the fault",
  resetAlarm: "Monitor the policy anew",
  who: "Your name (not checked)",
  signedIn: "Signed in as {name}",
  signOut: "Sign out",
  signIn: "Sign in",
  name: "Your name",
  secret: "Your secret",
  token: "Token of this cell",
  wrongSecret: "the name or the secret is wrong.",
  refused: "Not accepted: ",
  unreachable: "the cell cannot be reached.",
  whoMissing: "please give your name first.",
  openObjects: "Still to decide: {objects}",
  nothingSaid: "Nothing is decided yet",
  peelsFirst: "You said that something is to be peeled. Take that back first.",
  askedThere: "That is {object}. Press Peel it there.",
  samePlace: "{first} and {second} are the same place: give both the same answer",
  answer: "Answer",
  sending: "sent ...",
  done: "done.",
  notDone: "NOT done: ",
  noReply: "no reply within {seconds} s.",
  noReplyToHold: "no reply within {seconds} s. It is sent again until there is one.",
  replies: {
    401: "please sign out and sign in again.", 403: "answers are taken from this page only.", 408: "it came too late.",
    421: "this is not the address of the page.", 422: "the answer is not complete.", 429: "too many attempts, please wait a minute.",
  },
  answeredBy: "{name} has answered.",
  laptop: "Laptop {name}",
  health: "Health",
  levels: { ok: "well", warning: "warning", error: "error", silent: "silent" },
  history: "History",
  kinds: {
    gate_unknown: "No state", gate_blocked: "Closed", gate_monitoring: "Watching", gate_permitted: "Open",
    gate_removing: "Arm at work", gate_verifying: "Checking", gate_intervention: "Asked", gate_fault: "Fault",
    arrived: "Laptop arrived", done_clean: "Laptop clean", done_left: "Laptop left to people", asked: "Question",
    answered: "Answer", hold: "Held by", release: "Released by", reset: "Reset by",
  },
  keysTitle: "Keys",
  keyNames: { Enter: "Enter" },
  keys: {
    "1 ... 9": "choose an object", "↑ ↓": "the object before, the next one", P: "peel it", L: "leave it", N: "nothing is there",
    D: "draw a missed sticker", U: "take back the last drawn box", Enter: "send the answer", R: "look again", C: "no sticker is left", S: "leave the laptop to people",
    F: "something is wrong", H: "hold", B: "boxes on or off", K: "unsure edges on or off", A: "heat map on or off", V: "live picture or the one in question",
  },
  // What the cell says, by code. A code that is missing here is shown in the words of the cell.
  messages: {
    no_scene: "Nothing has been seen yet", stale_scene: "What was seen last is too old", failed_scene: "Perception failed",
    implausible_scene: "What was seen is implausible", stamp_order: "The pictures come out of order", frozen_image: "The camera's picture is frozen",
    exposure: "The picture is too dark or too bright", source_changed: "The camera has changed",
    model_changed: "The detector or the policy has changed", clock: "The clock is wrong", pose: "The pose of an object is unknown",
    inconsistent: "Looking again until it is certain", uncertain: "Something is uncertain", unexplained: "A sticker may have been missed",
    panel: "A monitor of the panel objects", uncalibrated: "The limits are not proved for this cell", nothing_to_remove: "There is nothing to peel", waiting_for_operator: "Waiting for your answer",
    held: "Held", arm_failed: "The arm is not ready", verifying: "Checking whether the sticker is gone", fault: "A fault, until it is reset",
    contradicted: "What was seen has changed", not_active: "The supervisor is not active", assumption: "The policy does not hold here",
    audit: "The log cannot be written", second_gate_publisher: "Another supervisor publishes the gate",
    unknown_gate_publisher: "Another gate publisher cannot be received", above_limit: "{subject} {value}, highest allowed {limit}",
    below_limit: "{subject} {value}, lowest allowed {limit}", within_limit: "{subject} {value}, within {limit}",
    reaches_limit: "{subject} {value}, at least {limit}", not_measured: "{subject} could not be measured", measurement_invalid: "Measurement invalid",
    no_sticker: "Not a sticker: probability {value}, notable from {limit}",
    possible_sticker: "It may be a sticker: probability {value}, notable from {limit}", few_passes: "Too few passes detected it: {count}",
    detected_twice: "One pass detected it twice: it may be two things",
    monitor_objects: "Monitor {subject} objects: {value}, highest allowed {limit}",
    monitor_agrees: "Monitor {subject} agrees: {value}, within {limit}",
    monitor_says_no_sticker: "Monitor {subject} says that it is no sticker: {value}, from {limit}", operator_removes: "An operator said to peel it",
    operator_keeps: "An operator said to leave it", operator_sees_nothing: "An operator said that nothing is there",
    operator_says_clean: "An operator said that no sticker is left", operator_drew: "An operator drew it",
    operator_drew_on_logo: "An operator drew a sticker where a logo is detected now",
    operator_answers_conflict: "Two answers fit it: peel it, and leave it", removal_incomplete: "It was not peeled completely",
    perception_failed: "The picture could not be assessed", perception_restricted: "Perception is restricted",
    scenes_disagree: "The pictures have disagreed for {seconds} s", possible_stickers: "Possible stickers that too few passes detected: {count}",
    missed_place: "A sticker may have been missed where the picture is marked: {subject} {value}, highest allowed {limit}",
    novel_place: "Something unfamiliar where the picture is marked: {subject} {value}, highest allowed {limit}",
    no_novelty_network: "{subject} could not be measured: there is no usable novelty network for the detector's weights",
    unfamiliar_scene: "The picture is unlike those the policy was made from: {signal} {measured}, usual {low} to {high}",
    spot_check: "A spot check: please decide every object with a number, and draw every other sticker",
    policy_other_weights: "The policy was made for another detector ({expected}, not {found})",
    policy_other_settings: "The policy was made for other settings of perception ({expected}, not {found})",
    policy_other_device: "The policy was made on another kind of device ({expected}, not {found}): calibrate again on this one",
    policy_other_panel: "The policy was made with other monitors ({expected}, not {found})",
    policy_other_camera: "The policy was made for camera {expected}, not {found}",
    policy_other_image_size: "The policy was made for pictures of {expected} px, not {found} px", policy_expired: "The policy was valid until {day}",
    drift: "Since the policy was made, this has changed: {subject} (laptops {count}, false alarm probability {rate})",
    wrong_removal: "Wrong removals in spot checks: {count} of {checks}, promised at most {limit} (false alarm probability {rate})",
    missed_sticker: "Missed stickers in spot checks: {count} of {checks}, promised at most {limit} (false alarm probability {rate})",
    scene_unreadable: "What was seen cannot be read", scene_not_judged: "What was seen could not be judged",
    detector_lost: "The detector has died or is gone", image_unusable: "The picture cannot be used", values_not_finite: "A measurement is invalid",
    value_out_of_range: "A measurement is impossible: {subject} {measured}, possible {low} to {high}",
    image_without_size: "The picture has the size {width} x {height} px", image_without_digest: "The picture has no digest",
    decision_inconsistent: "The decision is inconsistent", image_late: "The picture was {seconds} s old on arrival",
    image_repeats: "Identical pictures in a row: {count}", stamp_invalid: "The picture has no valid timestamp",
    stamp_unchanged: "The timestamp of the pictures does not change", stamp_backwards: "The timestamps of the pictures went back by {seconds} s",
    stamp_in_future: "The picture is {seconds} s ahead of the clock", clock_ahead: "The clock jumped ahead by {seconds} s",
    clock_back: "The clock jumped back by {seconds} s", image_source_changed: "Pictures of {before} became pictures of {after}",
    calibration_changed: "The camera's calibration has changed", weights_changed: "Other weights", settings_changed: "Other settings of perception",
    panel_changed: "Other monitors", policy_changed: "Another policy", calibration_unknown: "The calibration of the cell is not known",
    calibration_other_size: "The camera's calibration is for pictures of {expected} px, not {found} px",
    camera_info_missing: "The camera's calibration is missing",
    camera_info_other_frame: "The camera's calibration is of {found}, the picture of {expected}",
    camera_info_apart: "The camera's calibration is {seconds} s away from the picture", lid_unknown: "The pose of the lid is unknown",
    frame_pose_unknown: "The pose of {frame} is unknown", object_not_located: "Object {object} cannot be located",
    objects_to_decide: "Objects to decide: {count}", monitors_object: "These monitors object: {names}",
    workpiece_left: "This laptop is left to people", goal_rejected: "The arm rejected the task", arm_reported: "The arm reported: {subject}",
    arm_stopped: "Somebody stopped the arm", arm_stopping: "Waiting for the arm to stop", arm_silent: "No heartbeat from the arm",
    arm_server_lost: "The arm's program is gone", arm_not_stopped: "The arm could not be stopped in task {goal}",
    arm_does_not_stop: "The arm did not end task {goal} within {seconds} s",
    removal_stopped: "The removal was stopped", removal_tried: "Attempts: {count}",
    removal_unverified: "For {seconds} s it could not be seen whether it is gone", sticker_still_there: "The sticker is still there",
    permit_not_renewed: "The permit was not renewed in time", gate_settings_changed: "The settings of the gate have changed",
    goal_not_accepted: "The arm did not accept the task within {seconds} s", removal_too_long: "The removal took more than {seconds} s",
    logo_at_object: "A logo is detected in its place", object_not_removable: "It may not be peeled any more",
    object_not_found: "It was not found again", scene_doubtful: "The whole picture is uncertain", object_covered: "Another {subject} covers it",
    neighbour_moved: "The {subject} beside it has moved", another_workpiece: "Another laptop lies in the cell", no_sticker_left: "No sticker is left",
    operator_left_workpiece: "{person} left it to people", internal_error: "An internal error",
    operator_reported_fault: "{person} reported that something is wrong", last_run_faulted: "The last run ended in a fault",
    last_run_asked: "The last run ended during a question", audit_write_failed: "The log cannot be written",
    audit_behind: "The disk is behind: an entry of the log has waited for {seconds} s",
    other_gate_publishers: "Another supervisor publishes the gate: {names}",
    gate_publishers_not_received: "Other publishers of {topic} that cannot be received: {count}",
    policy_uncalibrated: "No permit on limits that prove nothing (policy {policy})",
    listening_first: "First {seconds} s of listening for other supervisors", gate_stands: "Gate: {subject}", answer_taken: "The answer was taken",
    fault_reset: "The fault is reset", assumption_reset: "The policy is monitored anew", goal_given_up: "Task {goal} was lost with the arm's program",
    goal_awaited: "The gate stays closed until the arm ends task {goal}", not_configured: "Not configured: {node}", person_missing: "give your name",
    request_not_open: "this question is not open any more ({request})",
    camera_changed_since: "the camera has changed since the question was asked, answer for the whole picture", answer_empty: "the answer is empty",
    scene_answer_with_removal: "an answer for the whole picture and something to peel exclude each other", answers_differ: "different answers about the same place",
    object_unanswered: "an object is not decided yet", answer_unknown: "the answer about an object is unknown",
    scene_answer_unknown: "the answer {number} is unknown", command_unknown: "the command {number} is unknown", box_without_area: "a box has no area",
    box_outside_image: "a box lies outside the picture of {width} x {height} px", no_fault: "there is no fault to reset",
    supervisor_missing: "the supervisor is not there", supervisor_timeout: "the supervisor did not answer in time",
    supervisor_busy: "the supervisor has {count} requests to answer: please try again",
    request_too_long: "too much at once: at most {answers} answers, and {characters} characters of a name",
    model_serves: "{model} ({hash}) replaces {old_model} ({old_hash})", model_kept: "{model} ({hash}) stays in use",
    model_loading: "A detector is being loaded already", model_unloaded: "Not configured any more: {node}",
    model_request_invalid: "The request cannot be served",
  },
  // In place of a message of the same code where its numbers belong into the details; an empty one stands in the details alone.
  plain: {
    spot_check: "A spot check: decide every object with a number, and draw a box around every other sticker",
    below_limit: "Not sure enough: {subject}", above_limit: "Not sure enough: {subject}", within_limit: "Sure enough: {subject}",
    reaches_limit: "Too much: {subject}", no_sticker: "It may not be a sticker", possible_sticker: "It may be a sticker",
    few_passes: "It is not always seen", monitor_objects: "A second check disagrees", monitor_agrees: "A second check agrees",
    monitor_says_no_sticker: "A second check says that it is no sticker", scenes_disagree: "The pictures disagree",
    possible_stickers: "There may be stickers that are not always seen", missed_place: "A sticker may have been missed where the picture is marked",
    novel_place: "Something unfamiliar lies where the picture is marked", unfamiliar_scene: "The picture looks unlike what the cell knows",
    objects_to_decide: "", monitors_object: "A second check disagrees", arm_reported: "The arm stopped: {subject}",
    policy_other_weights: "The limits were made for another detector", policy_other_settings: "The limits were made for other settings",
    policy_other_panel: "The limits were made with other checks", policy_other_camera: "The limits were made for another camera",
    policy_other_image_size: "The limits were made for pictures of another size", drift: "The laptops have changed since the limits were made",
    wrong_removal: "Too many wrong removals in spot checks", missed_sticker: "Too many missed stickers in spot checks",
    image_late: "The picture came too late", image_without_size: "The picture has no size", stamp_backwards: "The clock of the pictures went back",
    stamp_in_future: "The picture is ahead of the clock", clock_ahead: "The clock jumped ahead", clock_back: "The clock jumped back",
    image_source_changed: "The camera sends other pictures", calibration_other_size: "The camera's calibration is for pictures of another size",
    camera_info_other_frame: "The camera's calibration is of another camera", camera_info_apart: "The camera's calibration is not of this moment",
    arm_does_not_stop: "The arm does not say that it has stopped", arm_not_stopped: "The arm could not be stopped", removal_unverified: "It could not be seen whether it is gone",
    goal_not_accepted: "The arm did not take the task", removal_too_long: "The removal took too long", removal_tried: "It was tried before",
    audit_behind: "The disk is behind with the log", goal_rejected: "The arm refused the task", goal_awaited: "The gate stays closed until the arm has stopped",
    goal_given_up: "The task was lost with the arm's program", gate_publishers_not_received: "There may be another supervisor",
    other_gate_publishers: "Another supervisor is at work", listening_first: "Waiting for other supervisors to be heard",
    image_repeats: "The camera sends the same picture again and again", object_not_located: "It cannot be located",
  },
  // In place of above_limit and below_limit, by what is measured.
  doubts: {
    sticker_probability: "It may not be a sticker", logo_probability: "It may not be a logo", left_probability: "What stays may be a sticker",
    detection_rate: "It is not always seen", variation_ratio: "It is not clear what it is", shannon_entropy: "It is not clear what it is",
    mutual_information: "It is not clear what it is", total_variance: "Its edges are not clear", predictive_surface: "Its edges are not clear",
    relative_total_variance: "Its edges are not clear", relative_predictive_surface: "Its edges are not clear", risk: "Peeling it may be wrong",
    logo_overlap: "It may lie on a logo", dil: "A sticker may have been missed", background_saliency: "A sticker may have been missed",
    unexplained_objectness: "A sticker may have been missed", missed_sticker_probability: "A sticker may have been missed",
    novelty: "Something unfamiliar is in the picture", mean_level: "The picture is too dark or too bright",
    dark_share: "The picture is too dark", saturated_share: "The picture is too bright", noise: "The picture is not clear", sharpness: "The picture is not sharp",
  },
  // What {subject} and {signal} of a message are about: measures, classes, how a removal ended, states of the gate.
  subjects: {
    sticker_probability: "probability of sticker", logo_probability: "probability of logo", left_probability: "probability that a sticker is left",
    detection_rate: "share of the passes that detected it", variation_ratio: "share of the passes that disagree about the class",
    shannon_entropy: "uncertainty about the class (entropy, bit)", mutual_information: "contradiction between the passes (mutual information, bit)",
    total_variance: "scatter of the edges (px^2)", predictive_surface: "scatter of the corners (px^2)",
    relative_total_variance: "scatter of the edges (share of its area)", relative_predictive_surface: "scatter of the corners (share of its area)",
    risk: "risk of wrong removal", logo_overlap: "overlap with a possible logo", dil: "saliency that no box explains (DiL)",
    background_saliency: "saliency outside the boxes", saliency: "saliency", unexplained_objectness: "objectness that no box explains",
    scene_distance: "distance from what the detector was trained on", object_novelty: "novelty of the thing",
    probability: "probability of a class", decision_threshold: "decision threshold", complete_localization: "complete localization",
    background_localization: "background localization", novelty: "novelty of the picture", missed_sticker_probability: "probability of a missed sticker", mean_level: "brightness",
    dark_share: "dark share of the picture", saturated_share: "white share of the picture", noise: "noise", sharpness: "sharpness",
    score: "mean probability of the objects", objects: "number of objects", unstable: "number of objects in too few passes",
    unstable_share: "share of objects in too few passes", background: "thing", logo: "logo", sticker: "sticker", none: "success", unknown: "unknown",
    permit_revoked: "its permission was withdrawn", stale_permit: "its permission had ended", operator_abort: "cancelled by an operator",
    timeout: "the motion took too long", motion_failed: "the motion failed", invalid_goal: "invalid task", not_stopped: "the arm could not be stopped", blocked: "closed", monitoring: "watching",
    permitted: "open", removing: "open, arm at work", verifying: "checking", intervention: "waiting for your answer", fault: "fault",
  },
  nodes: {
    detector: "Detector", supervisor: "Supervisor", console: "This page", cell_sim: "Simulated cell", image_source: "Source of pictures",
    recorder: "Recorder", shadow: "Candidate beside the cell", shadow_detector: "Detector of the candidate",
  },
  parts: {
    lifecycle: "Program", images: "Pictures", perception: "Perception", gate: "Gate", audit: "Log", policy: "Limits", cell: "Cell", page: "Page", source: "Source",
    recording: "Recording", comparison: "Comparison",
  },
};

// A template with the values in the places of their names.
export function fill(template, values) {
  return template.replace(/\{(\w+)\}/g, (_, name) => (name in values ? values[name] : ""));
}

// A reason of the cell in the page's words. `detail` is a text from outside that is quoted as it is.
export function say(reason) {
  const template = own(STRINGS.messages, reason.code);
  if (template === undefined) return reason.text;
  // so many digits that the value can be told from its limit
  const digits = [3, 4, 5, 6, 7].find((n) => reason.value === reason.limit || short(reason.value, n) !== short(reason.limit, n)) || 3;
  const values = { subject: subject(reason.subject), value: short(reason.value, digits), limit: short(reason.limit, digits), ...reason.box };
  for (const [name, value] of Object.entries(reason.values)) {
    values[name] = name === "signal" ? subject(value) : typeof value === "number" ? short(value, 3) : value;
  }
  const words = capital(fill(template, values));
  return reason.values.detail ? words + ": " + reason.values.detail : words;
}

export function sayAll(reasons) { return [...new Set(reasons.map(say))].join(". "); }

// Reasons in plain words, without numbers and without what a program said.
export function plain(reasons) { return [...new Set(reasons.map(plainly).filter(Boolean))].join(". "); }

// The reasons that say more than their plain words, in full.
export function numbers(reasons) { return sayAll(reasons.filter((reason) => say(reason) !== plainly(reason))); }

function plainly(reason) {
  const doubt = ["above_limit", "below_limit"].includes(reason.code) && Object.hasOwn(STRINGS.doubts, reason.subject);
  if (doubt) return STRINGS.doubts[reason.subject];
  const words = own(STRINGS.plain, reason.code);
  return words === undefined ? say({ ...reason, values: { ...reason.values, detail: "" } }) : capital(fill(words, { subject: subject(reason.subject) }));
}

function subject(name) { return own(STRINGS.subjects, name) ?? name; }

// The entry `name`, which comes from the cell and may be that of something every object has.
function own(words, name) { return Object.hasOwn(words, name) ? words[name] : undefined; }

function capital(words) { return words.charAt(0).toUpperCase() + words.slice(1); }

function short(value, digits) { return value === null ? "?" : String(Number(value.toPrecision(digits))); }
