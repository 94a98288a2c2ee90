# SPDX-License-Identifier: Apache-2.0
"""The report of a qualification: ready or not, why, what can be proved, and what the next hundred labels would buy."""

from sticker_uq.evaluation.reporting.document import Block, Table, as_html
from sticker_uq_lab.qualifying.qualification import Qualification
from sticker_uq_lab.qualifying.results import MORE, NOT_MEASURED, percent

REPORT = "report.html"
_MOST_SHOWN = 30
_MET = {True: "met", False: "NOT MET", None: ""}


def qualification_report(found: Qualification, bundle: str) -> str:
    """One HTML page; ``bundle``: what became of the bundle, a sentence."""
    verdict = "Ready" if found.ready else "Not ready"
    required = [
        (one.name, one.value, one.limit, _MET[one.met], "" if one.met else one.advice)
        for one in found.requirements
    ]
    blocks: list[Block] = [
        f"# {verdict}",
        lead(found),
        bundle,
        "## What is required",
        Table(("requirement", "found", "limit", "", "what to do"), required),
        *_provable(found),
        *_next_labels(found),
        *_accuracy(found),
        *(["## The policy on the test part", f"{found.policy_test}."] if found.policy_test else []),
        *_robustness(found),
        *_data(found),
        "## How it was made",
        f"{found.settings.command or 'from Python'}; model {found.training.model}, {found.training.epochs} epochs on "
        f"{found.training.pictures} pictures; {found.perception.passes} passes.",
    ]
    return as_html(f"Qualification: {verdict.lower()}", blocks)


def lead(found: Qualification) -> str:
    if found.ready:
        levels = found.settings.levels
        rates = f"at most {percent(levels.alpha)} of the images lead to a wrongful removal"
        confidence = f"with confidence {percent(1 - levels.delta)}"
        promise = f"{rates}, {confidence}; a person checks every laptop before it counts as clean"
        if levels.beta:
            promise = (
                f"{rates}, and at most {percent(levels.beta)} of those with stickers that are finished without a person keep "
                f"one, each {confidence}"
            )
        return f"Every requirement is met. On laptops like those of the calibrate part {promise}.{_caution(found)}"
    unmet = [one for one in found.requirements if one.met is False and one.value != NOT_MEASURED]
    text = "; ".join(f"{one.name}: {one.value}, expected {one.limit}" for one in unmet)
    informed = [one for one in found.requirements if one.met is None and one.advice]
    advice = list(dict.fromkeys(one.advice for one in (*informed, *unmet)))
    return f"{text}. What to do: {'; '.join(advice)}.{_caution(found)}"


def _caution(found: Qualification) -> str:
    """What the levels do not prove when others were tried on the same pictures before."""
    if not found.tried_levels:
        return ""
    others = "; ".join(f"--alpha {one.alpha:g} --beta {one.beta:g}" for one in found.tried_levels)
    return (
        f" CAUTION: the same calibrate part has been calibrated to other levels before ({others}). Levels that were chosen "
        "after such a result prove nothing; they need other pictures."
    )


def _provable(found: Qualification) -> list[Block]:
    alpha, beta = found.provable.levels
    units, delta = found.provable.proof, found.provable.delta
    text = (
        f"{units.laptops} calibration laptops, {units.with_sticker} with a sticker, were used as proof; limits were fitted on "
        f"the others. At {percent(1 - delta)} confidence they cannot show a rate below {percent(alpha)} of wrongful removals "
        f"(--alpha) and {percent(beta)} of stickers left (--beta), even if none goes wrong."
    )
    seen = found.calibration
    blocks: list[Block] = ["## What these labels can prove", text]
    if seen.alpha == seen.alpha:
        other = f" and {percent(seen.beta)}" if found.settings.levels.beta else ""
        blocks.append(
            f"As the images came out, {percent(seen.alpha)}{other} would have been the lowest level proved. "
            "A level that is chosen after looking at the images needs other images to prove it."
        )
    if found.shortfall:
        levels = found.settings.levels
        blocks.append(
            f"For --alpha {levels.alpha:g} and --beta {levels.beta:g} {found.shortfall}; more with every mistake."
        )
    return blocks


def _next_labels(found: Qualification) -> list[Block]:
    now, then = found.provable, found.provable.after(MORE)
    rows = [
        (
            name,
            str(one.proof.laptops),
            str(one.proof.with_sticker),
            *(percent(level) for level in (*one.levels, *one.with_one_bad)),
        )
        for name, one in (("now", now), (f"with {MORE} more", then))
    ]
    head = ("labels in the calibrate part", "laptops that prove", "with a sticker", "lowest alpha", "lowest beta",
            "alpha with one bad", "beta with one bad")  # fmt: skip
    return [
        f"## What the next {MORE} labels would buy",
        "In the calibrate part, with as large a share of laptops with a sticker as now. Exact arithmetic, where every laptop "
        "with a sticker is finished without a person:",
        Table(head, rows),
        "Pictures that were chosen because they are hard belong to the learn part only: the calibrate and test parts need "
        "laptops drawn at random.",
    ]


def _accuracy(found: Qualification) -> list[Block]:
    seen = found.accuracy
    rows = [(name, *(percent(value) for value in values)) for name, *values in seen.rows]
    return [
        "## Accuracy on the test part",
        f"mAP@0.5 of {seen.map50:.3f} in one pass without dropout, {seen.clusters_map50:.3f} for the clusters of {seen.passes} "
        f"passes, on {seen.pictures} pictures. Of the clusters, precision and recall with a score of 0.5 or more:",
        Table(("class", "AP@0.5", "precision", "recall"), rows),
        f"Novelty network: {found.novelty}.",
    ]


def _robustness(found: Qualification) -> list[Block]:
    seen = found.robustness
    if seen is None:
        return [
            "## Robustness",
            "Not assessed" + ("." if found.policy else ": there is no policy with a guarantee."),
        ]
    return [
        "## Robustness",
        f"Over all circumstances: {seen.finding}; {seen.images} pictures of the test part in each. It is no requirement: whether "
        "a circumstance occurs is for the people of the cell to say (`sticker-uq robustness init`). What is "
        "undecided takes more pictures (--robustness-images, and as large a test part). Details are in robustness/report.html.",
        Table(("circumstance", "finding"), list(seen.circumstances.items())),
    ]


def _data(found: Qualification) -> list[Block]:
    rows = [
        (name, str(one.pictures), str(one.laptops), str(one.logos), str(one.stickers), str(one.clean))
        for name, one in found.check.parts.items()
    ]
    head = ("part", "pictures", "laptops", "logos", "stickers", "laptops without a sticker")
    blocks: list[Block] = ["## Data", Table(head, rows)]
    for title, lines in (
        ("Labels to look at", found.check.labels),
        (
            "Pictures of different parts that are alike; if they show one laptop, the guarantee is void",
            found.check.near,
        ),
    ):
        if lines:
            more = f" (the first {_MOST_SHOWN})" if len(lines) > _MOST_SHOWN else ""
            shown = Table(("",), [(line,) for line in lines[:_MOST_SHOWN]])
            blocks += [f"{title}: {len(lines)}{more}", shown]
    return blocks
