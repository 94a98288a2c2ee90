# SPDX-License-Identifier: Apache-2.0
"""The Python interface, ``from sticker_uq import ...``: Detector, packaged_limits, read_image, judge; scenes drawn on images
or as a table of objects.

Example:
    >>> from sticker_uq import Detector, read_image
    >>> judged = Detector(passes=20).judge(read_image("lid.jpg"))
    >>> print(judged.decision.outcome.name)
    >>> judged.save("judged.png")
"""

from __future__ import annotations

import html
from base64 import b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

# everything else is imported where it is used: importing this module loads neither torch nor SciPy
if TYPE_CHECKING:
    import pandas as pd

    from sticker_uq.gate import Policy
    from sticker_uq.io.images import Picture
    from sticker_uq.scene import SceneAssessment, SceneDecision


class AssessedImage(NamedTuple):
    """One image of a source: its ``name`` there, its pixels (H, W, 3) uint8 BGR (None if unreadable), and its assessment."""

    name: str
    image: Picture | None
    scene: SceneAssessment


@dataclass(frozen=True, repr=False)
class JudgedImage:
    """An ``image`` (H, W, 3) uint8 BGR, its assessment ``scene`` and what the cell would do, ``decision``.

    As the last line of a notebook's cell it shows the picture with its objects, and their table.

    Example:
        >>> judged = Detector().judge(read_image("lid.jpg"))
        >>> judged.save("judged.png")
    """

    image: Picture
    scene: SceneAssessment
    decision: SceneDecision

    def draw(self) -> Picture:
        """A copy of the image (H, W, 3) uint8 BGR with the objects, their uncertainty and the decision."""
        return draw(self.image, self.scene, self.decision)

    def show(self) -> None:
        """Show :meth:`draw` in a window or, in a notebook, below the cell."""
        from matplotlib import pyplot

        pyplot.figure(self.decision.outcome.name)
        pyplot.imshow(self.draw()[..., ::-1])
        pyplot.axis("off")
        pyplot.show()

    def save(self, path: str | Path) -> None:
        """Write :meth:`draw` to ``path``; its suffix names the format. Raises :class:`~sticker_uq.InvalidInput` if it cannot."""
        import cv2

        from sticker_uq.io.files import atomic_write
        from sticker_uq.scene import InvalidInput

        suffix = Path(path).suffix
        if not suffix or not cv2.haveImageWriter(f"judged{suffix}"):
            raise InvalidInput(f"{path}: expected a picture's suffix, as .png")
        with atomic_write(Path(path)) as stream:
            stream.write(cv2.imencode(suffix, self.draw())[1].tobytes())

    def table(self) -> pd.DataFrame:
        """A row for every object, with the columns of :func:`objects_table`."""
        import pandas as pd

        from sticker_uq.evaluation.replay.tables import OBJECT_SCHEMA, object_rows

        return pd.DataFrame(object_rows("", self.scene, self.decision), columns=OBJECT_SCHEMA.names).drop(
            columns="image"
        )

    def __repr__(self) -> str:
        return repr(self.decision)

    def _repr_html_(self) -> str:
        import cv2

        picture = b64encode(cv2.imencode(".png", self.draw())[1].tobytes()).decode()
        shown = ["label", "verdict", "p_sticker", "detection_rate", "mutual_information"]
        return (
            f'<p>{html.escape(repr(self))}</p><img alt="objects and decision" src="data:image/png;base64,{picture}">'
            f"{self.table()[shown].to_html(index=False, float_format='{:.3f}'.format)}"
        )


class Detector:
    """A sticker detector that measures its own uncertainty by Monte Carlo dropout, with everything the live node computes.

    Without arguments it has the packaged weights, which know rendered laptops only. Loading takes some seconds.
    """

    def __init__(self, weights: str | Path = "", **settings: Any) -> None:
        """``weights``: a file of ``sticker-uq train``; ``settings``: fields of :class:`~sticker_uq.perception.PerceptionSettings`
        (``passes``, ``dropout_rate``, ``device``, ``seed``, ...; the page of parameters describes each).

        Raises :class:`~sticker_uq.InvalidInput` naming every unknown or impossible setting, and for weights that do not load.
        """
        from sticker_uq.io.parameter_files import refuse_unknown
        from sticker_uq.io.setting_fields import validate
        from sticker_uq.perception.factory import load_perception
        from sticker_uq.perception.settings import PerceptionSettings

        refuse_unknown(settings, list(PerceptionSettings.model_fields))
        self.settings = validate(PerceptionSettings, settings | {"weights": str(weights)})
        self._perception = load_perception(self.settings)

    def __repr__(self) -> str:
        return f"<Detector: {self.settings.weights or 'packaged weights'}, {self.settings.passes} passes>"

    def judge(self, image: Picture, policy: Policy | None = None) -> JudgedImage:
        """What the cell would do about ``image`` (H, W, 3) uint8 BGR: its assessment, and the decision by ``policy``.

        ``policy`` is :func:`packaged_limits` by default. Raises :class:`~sticker_uq.InvalidInput` for anything that is no such
        image.
        """
        from sticker_uq.gate import judge

        scene = self.assess(image)
        return JudgedImage(image, scene, judge(scene, packaged_limits() if policy is None else policy))

    def assess(self, image: Picture) -> SceneAssessment:
        """The assessment of ``image`` (H, W, 3) uint8 BGR: objects, probabilities, uncertainty, DiL, novelty, saliency map.

        The same pixels and settings give the same result.

        Raises :class:`~sticker_uq.InvalidInput` for anything that is no such image.
        """
        return self._perception.assess(image, keep_saliency=True)

    def assess_all(self, source: str | Path, topic: str | None = None) -> Iterator[AssessedImage]:
        """The assessment of every image of ``source``, in order.

        ``source``: a picture, a folder of pictures, a recording (rosbag2 folder, .mcap, .db3; ``topic`` where it has several
        image topics), or a video.

        An image that cannot be read is yielded with status FAILED and the reason. Raises :class:`~sticker_uq.InvalidInput` for a
        source that does not exist or has no images.
        """
        from sticker_uq.evaluation.replay.assessing import one_by_one
        from sticker_uq.io.sources import open_source

        for item, scene in one_by_one(open_source(source, topic), self._perception):
            yield AssessedImage(item.name, item.image, scene)

    def save_video(
        self, source: str | Path, path: str | Path, policy: Policy | None = None, topic: str | None = None
    ) -> list[str]:
        """Judge the images of ``source`` (and ``topic``, see :meth:`assess_all`), and write what :func:`draw` shows to ``path``.

        Its suffix names the format: .mp4, .avi, or .webm, which browsers show. The video is as fast as the first ten images were
        taken; those of a folder are shown for a second each. Returns the names of images that cannot be read, which are left out.
        Raises :class:`~sticker_uq.InvalidInput` for another suffix, and for images of several sizes.

        >>> unreadable = Detector().save_video("lids.mp4", "judged.mp4")
        """
        import cv2

        from sticker_uq.io.sources import open_source
        from sticker_uq.scene import InvalidInput

        codec = {".mp4": "mp4v", ".avi": "MJPG", ".webm": "VP80"}.get(Path(path).suffix)
        if codec is None:
            raise InvalidInput(f"{path}: expected the suffix of a video: .mp4, .avi or .webm")
        unreadable: list[str] = []

        def readable() -> Iterator[tuple[str, int, Picture]]:
            for one in open_source(source, topic):
                if one.image is None:
                    unreadable.append(one.name)
                else:
                    yield one.name, one.stamp_ns, one.image

        images = readable()
        first = list(islice(images, 10))
        if not first:
            raise InvalidInput(f"{source}: expected an image that can be read")
        period_ns = (first[-1][1] - first[0][1]) / max(len(first) - 1, 1)
        rate = round(1e9 / period_ns, 2) if period_ns > 1e6 else 1
        size = first[0][2].shape[1::-1]
        with TemporaryDirectory(dir=Path(path).parent, prefix=".video") as folder:  # no half-written video
            part = Path(folder, Path(path).name)
            video = cv2.VideoWriter(str(part), cv2.VideoWriter.fourcc(*codec), rate, size)
            if not video.isOpened():
                raise InvalidInput(f"{path}: OpenCV cannot write {size} px as {codec}; try another suffix")
            for name, _, image in chain(first, images):
                if image.shape[1::-1] != size:
                    raise InvalidInput(
                        f"{source}: {name} is not of {size} px; expected the first image's size"
                    )
                video.write(self.judge(image, policy).draw())
            video.release()
            part.replace(path)
        return unreadable


def read_image(path: str | Path) -> Picture:
    """The image in the picture file ``path``, (H, W, 3) uint8 BGR. Raises :class:`~sticker_uq.InvalidInput` if it is none."""
    from sticker_uq.io.sources import open_source
    from sticker_uq.scene import InvalidInput

    (item,) = open_source(path) if Path(path).is_file() else (None,)
    if item is None or item.image is None:
        raise InvalidInput(f"{path}: expected a picture" + (f", {item.error}" if item is not None else ""))
    return item.image


def packaged_limits() -> Policy:
    """The limits set by hand for the packaged weights, ``config/limits.yaml``. A cell needs its own: ``sticker-uq calibrate``."""
    from sticker_uq.gate import Policy
    from sticker_uq.io.share import share_folder

    return Policy.load(share_folder() / "config" / "limits.yaml")


def draw(image: Picture, scene: SceneAssessment, decision: SceneDecision | None = None) -> Picture:
    """A copy of ``image`` (H, W, 3) uint8 BGR with the objects of ``scene``, their uncertainty and, if given, the ``decision``.

    Raises :class:`~sticker_uq.InvalidInput` when ``scene`` is about an image of another size.
    """
    from sticker_uq.evaluation.annotated_images import annotate

    return annotate(image, scene, decision)


def objects_table(images: Iterable[AssessedImage], policy: Policy | None = None) -> pd.DataFrame:
    """Table of objects in ``images``: image name, box, probabilities, detection rate, uncertainty metrics, what ``policy`` says.

    ``policy`` is :func:`packaged_limits` by default. The columns are those of ``sticker-uq replay``'s table of objects.
    """
    import pandas as pd

    from sticker_uq.evaluation.replay.tables import OBJECT_SCHEMA, object_rows
    from sticker_uq.gate import judge

    rules = packaged_limits() if policy is None else policy
    rows = [row for name, _, scene in images for row in object_rows(name, scene, judge(scene, rules))]
    return pd.DataFrame(rows, columns=OBJECT_SCHEMA.names)
