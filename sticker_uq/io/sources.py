# SPDX-License-Identifier: Apache-2.0
"""Image sources: recordings, folders of pictures, videos."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from sticker_uq.io.bag_files import foreign_format, is_bag_content
from sticker_uq.io.bags import BAG_SUFFIXES, Bag, is_bag_name, natural
from sticker_uq.io.images import (
    PICTURE_SUFFIXES,
    colour_remark,
    decode_compressed,
    decode_message,
    looks_like_picture,
    picture_files,
    read_image_file,
)
from sticker_uq.io.messages import stamp_to_ns
from sticker_uq.io.reading import check_regular
from sticker_uq.io.topics import IMAGE_TYPES
from sticker_uq.messages import printable
from sticker_uq.scene import InvalidInput

_CAMERA_INFO = "sensor_msgs/msg/CameraInfo"
_SHARE_READ = 0.95
"""Of the duration that a video says it has."""
_FEWEST_STEPS = 8
_SHARE_REGULAR = 0.9
_LONGEST_STEP = 3.5
"""In periods. A camera that adapts its exposure skips one or two."""
_MOST_BOXES = 1000
_OWN_PICTURES = ("annotated", "saliency")  # drawn by the detector


@dataclass(frozen=True)
class SourceImage:
    """One image of a source, or the reason why it cannot be read.

    ``image`` uint8 (H, W, 3) BGR, None exactly when ``error`` is set; ``stamp_ns`` and ``frame_id`` as the camera set
    them (for a folder the index, for a video the time since its start); ``name`` is unique in the source; ``path`` is the file
    of a picture of a folder.
    """

    image: NDArray[np.uint8] | None
    stamp_ns: int
    frame_id: str
    name: str
    error: str = ""
    path: Path | None = None


class ImageSource(ABC):
    """An iterable of :class:`SourceImage`; each iteration starts at the first image.

    An image that cannot be read is an item with an error and does not end the iteration. ``len()`` works where the number of
    images is known, ``operator.length_hint`` also where it is estimated. ``topic`` is the image topic of a
    recording, "" elsewhere; ``continuous``: whether the images are consecutive in time. ``declared``: images that the source says
    it has, None where it does not say; ``lost``: what of them cannot be read, complete after an iteration, "" when nothing is;
    ``remarks``: what is unusual in it and loses nothing.
    """

    topic = ""
    continuous = True
    declared: int | None = None
    lost = ""
    remarks: Sequence[str] = ()

    @property
    def camera_info(self) -> Any:
        """The first readable message of a recording on the ``camera_info`` beside its image topic, as rosbags decodes a
        ``sensor_msgs/msg/CameraInfo``; None where there is none.
        """
        return None

    @abstractmethod
    def __iter__(self) -> Iterator[SourceImage]: ...

    @abstractmethod
    def __len__(self) -> int: ...


def open_source(path: str | Path, topic: str | None = None, camera: str = "") -> ImageSource:
    """The images of a rosbag2 recording (folder, .mcap, .db3), of a folder of pictures, of one picture, or of a video.

    `topic` picks the image topic of a recording; without it there must be only one (pictures that the cell draws
    and the compressed copy of a raw topic do not count). `camera` took the pictures or the video; a recording says so itself.
    Raises InvalidInput when `path` does not exist, when it has no images, when the topic is missing, or for the `camera` of a
    recording.
    """
    path = Path(path)
    if not path.exists():
        raise InvalidInput(f"{path}: no such file or folder")
    if path.name == "metadata.yaml":
        raise InvalidInput(f"{path}: describes a recording; name its folder, {path.absolute().parent}")
    if is_recording(path):
        if camera:
            raise InvalidInput(f"--camera {camera}: {path} is a recording, which names its camera itself")
        return _BagSource(path, topic)
    if topic is not None:
        raise InvalidInput(f"--topic {topic}: {path} is not a recording")
    if path.is_dir():
        return _PictureSource(path, picture_files(path), camera, _pictures_below(path))
    if looks_like_picture(path):
        return _PictureSource(path, [path], camera)
    if path.is_file() and (foreign := foreign_format(path)):
        raise InvalidInput(f"{path}: {foreign}")
    return _VideoSource(path, camera)


def is_recording(path: Path) -> bool:
    """Whether the file or folder at ``path`` is a recording, with or without metadata.yaml."""
    if path.is_dir():
        return (path / "metadata.yaml").exists() or any(is_bag_name(file) for file in path.iterdir())
    return is_bag_name(path) or (path.is_file() and is_bag_content(path))


class _BagSource(ImageSource):
    def __init__(self, path: Path, topic: str | None) -> None:
        self.bag = Bag(path)
        self.topic = _choose(self.bag, topic)
        self.declared = self.bag.declared[self.topic]
        self.remarks: list[str] = list(self.bag.remarks)
        self._formats: set[str] = set()
        self.lost = self.bag.loss(self.topic)
        fuller = f"{self.topic}/compressed"
        if topic is None and (more := self.bag.declared[fuller]) > self.declared:
            self.remarks.append(
                f"{self.topic} has {self.declared} images, which are read, {fuller} {more}: --topic {fuller} reads those"
            )

    @property
    def camera_info(self) -> Any:
        image = self.topic.removesuffix("/compressed")
        topic = f"{image.rpartition('/')[0]}/camera_info"
        if self.bag.topics.get(topic) != _CAMERA_INFO:
            return None
        return next((item.message for item in self.bag.messages(topic) if not item.error), None)

    def __len__(self) -> int:
        return self.bag.counts[self.topic]

    def __iter__(self) -> Iterator[SourceImage]:
        compressed = self.bag.topics[self.topic] == IMAGE_TYPES["compressed"]
        stamps: list[int] = []
        for index, item in enumerate(self.bag.messages(self.topic)):
            name = f"{index:06d}"
            if item.lost:
                self.lost = item.error
            if item.error:
                yield SourceImage(None, item.received_ns, "", name, item.error)
                continue
            message = item.message
            stamp = stamp_to_ns(message.header.stamp)
            stamps.append(stamp)
            try:
                if compressed:
                    image = decode_compressed(message.data, message.format)
                    if message.format not in self._formats:
                        self._formats.add(message.format)
                        if remark := colour_remark(message.data, message.format):
                            self.remarks.append(remark)
                else:
                    image = decode_message(message)
            except InvalidInput as error:
                yield SourceImage(None, stamp, message.header.frame_id, name, str(error))
            else:
                yield SourceImage(image, stamp, message.header.frame_id, name)
        if (gap := _gap(stamps)) and gap not in self.remarks:
            self.remarks.append(gap)  # a camera may have stopped


def _choose(bag: Bag, topic: str | None) -> str:
    images = {name: kind for name, kind in bag.topics.items() if kind in IMAGE_TYPES.values()}
    filled = [name for name in images if bag.declared[name]] or list(images)
    listed = ", ".join(sorted(images)) or "none"
    if topic is not None:
        full = topic if topic.startswith("/") else f"/{topic}"
        if full not in images:
            raise InvalidInput(f"{bag.path}: no image topic {full}; image topics there: {listed}")
        return full
    candidates = [
        name
        for name in filled
        if name.removesuffix("/compressed").rsplit("/", 1)[-1] not in _OWN_PICTURES
        and not (name.endswith("/compressed") and name.removesuffix("/compressed") in filled)
    ]
    if len(candidates) == 1:
        return candidates[0]
    if not images:
        raise InvalidInput(f"{bag.path}: no image topic; topics there: {bag.topics_in_words()}")
    raise InvalidInput(f"{bag.path}: choose one image topic with --topic; image topics there: {listed}")


class _PictureSource(ImageSource):
    continuous = False

    def __init__(self, path: Path, files: list[Path], camera: str, remark: str = "") -> None:
        if not files:
            raise InvalidInput(
                f"{path}: no pictures ({' '.join(PICTURE_SUFFIXES)}) and no recording in this folder{_instead(path)}"
                + (f"; {remark}" if remark else "")
            )
        self.remarks = (remark,) if remark else ()
        self._camera = camera
        self._files = sorted(files, key=natural)

    def __len__(self) -> int:
        return len(self._files)

    def __iter__(self) -> Iterator[SourceImage]:
        for index, file in enumerate(self._files):
            name = printable(file.name)  # it may hold anything, also bytes that are no text
            try:
                yield SourceImage(read_image_file(file, name), index, self._camera, name, path=file)
            except InvalidInput as error:
                yield SourceImage(None, index, self._camera, name, str(error), file)


def _instead(folder: Path) -> str:
    """What is in ``folder`` that somebody may have meant, with what to do."""
    for file in sorted(folder.iterdir(), key=natural):
        if file.is_dir() and is_recording(file):
            return f"; {file.name} in it is a recording: name that"
        if file.is_file() and file.stat().st_size and (foreign := foreign_format(file)):
            return f"; {file.name} is {foreign}"
    return ""


def _pictures_below(folder: Path) -> str:
    """A remark on the pictures in the folders of ``folder``, which are a source each; "" without any."""
    try:
        inner = [path for path in picture_files(folder, below=True) if path.parent != folder]
    except InvalidInput:  # too large, or not to be listed
        return ""
    if not inner:
        return ""
    return (
        f"{folder}: {len(inner)} pictures in its folders are not read, first {inner[0]}; give these folders"
    )


class _VideoSource(ImageSource):
    def __init__(self, path: Path, camera: str) -> None:
        self._path, self._camera = path, camera
        check_regular(path)
        capture = cv2.VideoCapture(str(path))
        if not capture.isOpened() or not capture.read()[0]:
            if _lacks_index(path):
                raise InvalidInput(
                    f"{path}: has no index (moov): its recorder was killed; untrunc may save it"
                )
            known = ", ".join((*BAG_SUFFIXES, *PICTURE_SUFFIXES))
            raise InvalidInput(
                f"{path}: neither a recording, a picture ({known}) nor a video that OpenCV can read; convert a video with ffmpeg"
            )
        self._estimate = max(int(capture.get(cv2.CAP_PROP_FRAME_COUNT)), 0)
        self._period_ns = 1e9 / max(capture.get(cv2.CAP_PROP_FPS), 1e-3)
        self._is_mjpeg = int(capture.get(cv2.CAP_PROP_FOURCC)) == int.from_bytes(b"MJPG", "little")
        capture.release()

    def __len__(self) -> int:
        raise TypeError("the number of frames of a video is known only after reading it")

    def __length_hint__(self) -> int:
        return self._estimate

    def __iter__(self) -> Iterator[SourceImage]:
        capture, packets = cv2.VideoCapture(str(self._path)), _Packets(self._path, self._is_mjpeg)
        stamps: list[int] = []
        try:
            while True:
                there, frame = capture.read()
                if not there:
                    break
                stamps.append(stamp := _stamp(capture))
                name = f"{len(stamps) - 1:06d}"
                error = packets.error_at(stamp)
                image = None if error else np.ascontiguousarray(frame)
                yield SourceImage(image, stamp, self._camera, name, error)
            if lost := self._lost(stamps):
                self.lost = lost
                yield SourceImage(None, max(stamps, default=0), self._camera, f"{len(stamps):06d}", lost)
        finally:
            capture.release()
            packets.close()

    def _lost(self, stamps: list[int]) -> str:
        # of a format that tells no number of frames it comes from the duration, and frames may be irregular
        end, duration = max(stamps, default=0) + self._period_ns, self._estimate * self._period_ns
        if len(stamps) < self._estimate and end < _SHARE_READ * duration:
            return f"it ends after {end / 1e9:.1f} of {duration / 1e9:.1f} s; the file may be cut off"
        return _gap(stamps)


class _Packets:
    """Reads the pictures of a video of JPEGs beside its frames, which FFmpeg makes of what it has of them without a word."""

    def __init__(self, path: Path, is_mjpeg: bool) -> None:
        self._capture = cv2.VideoCapture(str(path)) if is_mjpeg else None
        if self._capture is not None and not self._capture.set(cv2.CAP_PROP_FORMAT, -1):
            self.close()
        self._at = -1

    def error_at(self, stamp: int) -> str:
        """What is wrong with the picture at ``stamp``, "" for nothing."""
        data = None
        while self._capture is not None and self._at < stamp:
            there, data = self._capture.read()
            if not there:
                self.close()
                return ""
            self._at = _stamp(self._capture)
        try:
            if data is not None and self._at == stamp:
                decode_compressed(data)
        except InvalidInput as error:
            return str(error)
        return ""

    def close(self) -> None:
        if self._capture is not None:
            self._capture.release()
        self._capture = None


def _stamp(capture: Any) -> int:
    return round(capture.get(cv2.CAP_PROP_POS_MSEC) * 1_000_000)


def _gap(stamps: list[int]) -> str:
    """Where images at a constant rate are missing, in words; "" where none are, or where the rate is not constant."""
    steps: NDArray[np.float64] = np.diff(np.array(stamps, np.int64)).astype(np.float64)
    period = float(np.median(steps)) if len(steps) >= _FEWEST_STEPS else 0.0
    if period <= 0 or (np.abs(steps - period) < period / 4).mean() < _SHARE_REGULAR:
        return ""
    gaps = np.flatnonzero(steps > _LONGEST_STEP * period)
    if not gaps.size:
        return ""
    missing = int((np.rint(steps[gaps] / period) - 1).sum())
    after = (stamps[gaps[0]] - stamps[0]) / 1e9
    return f"about {missing} images are missing in {gaps.size} gap(s), the first after {after:.1f} s"


def _lacks_index(path: Path) -> bool:
    """Whether the file is an mp4 (ISO base media) file without the box `moov`, which is written last."""
    names: list[bytes] = []
    at = 0
    with path.open("rb") as stream:
        while len(head := stream.read(16)) >= 8 and len(names) < _MOST_BOXES:
            length, name = int.from_bytes(head[:4]), head[4:8]
            names.append(name)
            at += int.from_bytes(head[8:16]) if length == 1 else length or 1 << 62
            stream.seek(at)
    return names[:1] == [b"ftyp"] and b"moov" not in names
