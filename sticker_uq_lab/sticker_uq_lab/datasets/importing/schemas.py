# SPDX-License-Identifier: Apache-2.0
"""What the files of labelling tools may say: keys that are read, keys that say nothing about boxes, classes and pictures, and,
as an error, every other key.
"""

import re
from collections import Counter
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, NamedTuple
from xml.etree.ElementTree import Element

from pydantic import BeforeValidator, Field, StrictInt, TypeAdapter

from sticker_uq.io.faults import Faults
from sticker_uq.io.reading import MOST_JSON, detect_encoding, read_bytes, show_value
from sticker_uq.scene import InvalidInput
from sticker_uq_lab.datasets.importing.named_picture import number

_SUSPECT = re.compile(r"rotat|angle|theta|orient|b_?box|bnd|points|polygon|offset|class|category", re.I)
"""Of attributes that a person may have defined: names that may stand for geometry or a class."""
_SAYS_NOTHING: tuple[object, ...] = (None, "", "0", "0.0", 0, [], {})
_Number = Annotated[float, BeforeValidator(lambda value: number(value, "value"))]
_TYPES: dict[str, tuple[TypeAdapter[Any], object, str]] = {
    "": (TypeAdapter(Any), None, "it to be there"),
    "number": (TypeAdapter(_Number), 0.0, "a number"),
    "text": (TypeAdapter(str), "", "text"),
    "flag": (TypeAdapter(bool), False, "true or false"),
    "list": (TypeAdapter(list[dict[str, Any]]), None, "a list of parts with keys"),
    "pair": (TypeAdapter(tuple[StrictInt, StrictInt]), (0, 0), "two integers"),
    "keys": (TypeAdapter(dict[str, Any]), None, "one with keys"),
    "points": (
        TypeAdapter(Annotated[list[tuple[_Number, _Number]], Field(min_length=1)]),
        None,
        "a list of x, y",
    ),
}
"""By name: what checks a value, the value where the key is not there, and what an error expects."""


class Schema(NamedTuple):
    """``read``: keys that are read, each as KEY or KEY:TYPE with a type of ``_TYPES``, and "!" where it must be there;
    ``harmless``: patterns of keys that are passed over; ``refused``: words about what is an error.
    """

    read: str
    harmless: str = ""
    refused: str = ""

    @property
    def types(self) -> dict[str, str]:
        """By key: its type, and "!" where it must be there."""
        return {key: kind for key, _, kind in (word.partition(":") for word in self.read.split())}


def unknown_key(part: str, key: str, count: int, where: str) -> str:
    return (
        f"{where}: key {show_value(key)} ({count} times in {part}) is not known: it may change a box, a class or the picture; "
        f"look at it, and give --ignore-key {show_value(key)[1:-1]} if it does not"
    )


class Keys:
    """Reads what follows a schema, without the keys that are ``ignored``, and collects those that nobody knows."""

    def __init__(self, ignored: tuple[str, ...] = ()) -> None:
        self.ignored = ignored
        self.boxes: Counter[Path] = Counter()
        """Shapes that were found in a file, as of :func:`boxes_in`."""
        self._used = set[str]()
        self._unknown: Counter[tuple[str, str]] = Counter()
        self._first: dict[tuple[str, str], str] = {}

    def drop_ignored(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """``content`` without the ignored keys."""
        self._used.update(set(content).intersection(self.ignored))
        return {key: value for key, value in content.items() if key not in self.ignored}

    def read(self, part: str, content: object, where: str) -> Any:
        """The keys of ``content`` as attributes, as the schema of ``part``, "FORMAT PART", has them; InvalidInput for a value of
        another type. ``unknown``: keys that are in no schema.
        """
        kind, _, name = part.partition(" ")
        if not isinstance(content, dict):
            raise InvalidInput(f"{where}: {show_value(content)}: expected {name} with keys")
        schema = SCHEMAS[kind][name]
        given = {
            key: value
            for key, value in self.drop_ignored(content).items()
            if value is not None and value != ""
        }
        patterns = schema.harmless.split()
        unknown = tuple(
            key
            for key, value in given.items()
            if key not in schema.types
            and not any(fnmatchcase(key, one) for one in patterns if one != "*" or not _SUSPECT.search(key))
            and value not in _SAYS_NOTHING
        )
        found = SimpleNamespace(unknown=unknown)
        for key, kind in schema.types.items():
            adapter, default, expected = _TYPES[kind.rstrip("!")]
            try:
                if key not in given and kind.endswith("!"):
                    raise ValueError(key)
                setattr(found, key, adapter.validate_python(given[key]) if key in given else default)
            except ValueError:  # as is pydantic's
                also = f"; not read: {', '.join(map(show_value, unknown))}" if unknown else ""
                raise InvalidInput(
                    f"{where}: {key} {show_value(content.get(key))}: expected {expected}{also}"
                ) from None
        return found

    def note(self, part: str, unknown: tuple[str, ...], where: str) -> None:
        for key in unknown:
            self._unknown[part, key] += 1
            self._first.setdefault((part, key), where)

    def header(self, part: str, content: object, where: str) -> Any:
        """:meth:`read` of what is no label of a class, and so cannot be left out with it."""
        found = self.read(part, content, where)
        self.note(part, found.unknown, where)
        return found

    def check_boxes(self, path: Path, faults: Faults) -> None:
        """A fault where another number of shapes is written in ``path`` than were found."""
        data = read_bytes(path, MOST_JSON)
        written = boxes_written(data.decode(detect_encoding(data) or "utf-8", "replace"))
        if written != self.boxes[path]:
            faults.add(
                f"{path}: has {written} shapes ({BOXES.replace('|', ', ')}), and {self.boxes[path]} of them where labels are: "
                "a key stands twice in one object, or labels where this format has none; repair the file"
            )

    def tell(self, faults: Faults) -> None:
        """Add the unknown keys to ``faults``, and the ignored ones that nothing has."""
        for (part, key), count in self._unknown.items():
            faults.add(unknown_key(part, key, count, self._first[part, key]))
        for key in sorted(set(self.ignored) - self._used):
            faults.add(f"--ignore-key {key!r}: no label, shape, task or header has this key")


BOXES = "bbox|bndbox|robndbox|box|points|polygon|polyline|ellipse|mask|cuboid|skeleton|radiusX|rle|vertices|original_width"
_BOXES = frozenset(BOXES.split("|"))
_WRITTEN = re.compile(rf'"(?:{BOXES})"\s*:|<(?:{BOXES})[\s/>]')


def boxes_written(text: str) -> int:
    """Keys and elements with a shape in the ``text`` of a file, without parsing it."""
    return len(_WRITTEN.findall(re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)))


def boxes_in(content: object) -> int:
    """The same in parsed ``content``."""
    if isinstance(content, Element):
        return sum(one.tag in _BOXES for one in content.iter())
    if isinstance(content, dict):
        return sum((key in _BOXES) + boxes_in(value) for key, value in content.items())
    if isinstance(content, list) and content and not isinstance(content[0], float | int):
        return sum(map(boxes_in, content))
    return 0


_LABEL_STUDIO_VALUE = "*labels choices text rating taxonomy number"
_CVAT_SHAPE = "source occluded z_order group_id keyframe attribute score"
SCHEMAS: dict[str, dict[str, Schema]] = {
    "coco": {
        "file": Schema(
            "images:! annotations:! categories:!",
            "info license licenses type version contributor description date_created url tag_categories",
            "a file without `categories`; COCO panoptic (`segments_info`)",
        ),
        "image": Schema(
            "id:! file_name:text! width height path:text workpiece_id:text",
            "license license_id licenses coco_url flickr_* darwin_* tag_ids url date_captured date captured_at datetime *_at "
            "*_by timestamp seed source_name extra dataset_id category_ids annotated annotating num_annotations metadata deleted "
            "milliseconds events regenerate_thumbnail is_modified video_id frame_id frame_index frame_num seq_* channels depth "
            "tags attributes caption subset split md5 sha* hash checksum size file_size format neg_category_ids "
            "not_exhaustive_category_ids rights_holder location case source added lost request_id stamp_ns person",
        ),
        "annotation": Schema(
            "id:! image_id:! category_id:! bbox segmentation area iscrowd bbox_mode category_name:text attributes difficult "
            "ignore",
            "keypoints num_keypoints caption score confidence probability color isbbox metadata creator events width height "
            "occluded occlusion truncated truncation visibility visible whole_bbox track_id instance_id *_at *_by datetime date "
            "comment note annotator source uuid guid subset tags license probabilities ambiguous extra supercategory",
            "`bbox_mode` other than 1; a box that contradicts its polygons or its area; a mask without a box",
        ),
        "attributes": Schema("rotation:number", "* classifications"),
        "category": Schema(
            "id:! name",
            "supercategory color isthing keypoints skeleton keypoint_colors metadata creator synonyms synset def frequency "
            "image_count instance_count display_name attributes parent parent_id description",
        ),
    },
    "voc": {
        "file": Schema(
            "filename:text path:text folder:text size object",
            "source owner segmented verified database relation",
        ),
        "size": Schema("width height", "depth"),
        "object": Schema(
            "name:! bndbox:keys! polygon:keys attributes difficult type:text",
            "pose truncated occluded part actions point id deleted verified date crowd confidence score source annotator",
            "an object without `bndbox` or with several, or whose polygon contradicts it; `robndbox`",
        ),
        "bndbox": Schema("xmin:number! ymin:number! xmax:number! ymax:number!"),
    },
    "yolo": {
        "data.yaml": Schema(
            "names:! nc kpt_shape:pair train val test path",
            "download roboflow flip_idx kpt_names channels license url description author date version task stride imgsz batch "
            "minival colors skeleton yaml_file val_* train_* split end2end args dataset*",
            "lines with a confidence; key points without `kpt_shape`; `nc` that contradicts `names`; lost label files",
        )
    },
    "cvat": {
        "file": Schema("image", "version meta", "`track` (*CVAT for video*)"),
        "image": Schema("name:! width height subset:text", "id task_id job_id project_id"),
        "box": Schema(
            "label:! xtl:number! ytl:number! xbr:number! ybr:number! rotation:number",
            _CVAT_SHAPE,
            "`points`, `polyline`, `cuboid`, `skeleton`",
        ),
        "polygon": Schema("label:! points:text!", _CVAT_SHAPE),
        "ellipse": Schema("label:! cx:number! cy:number! rx:number! ry:number! rotation:number", _CVAT_SHAPE),
        "mask": Schema(
            "label:! left:number! top:number! width:number! height:number! rle:text",
            _CVAT_SHAPE,
            "`rle` of another size than the box",
        ),
    },
    "label-studio": {
        "task": Schema(
            "data:! annotations:list!",
            "id predictions drafts meta *_at *_by *_count *_id total_* cancelled_annotations comment_authors comments project "
            "file_upload is_labeled overlap avg_lead_time lead_time draft_exists state allow_skip *agreement* reviews reviewers "
            "annotators annotations_results annotations_ids predictions_* storage_filename ground_truth",
        ),
        "annotation": Schema(
            "result:list! was_cancelled:flag ground_truth:flag",
            "id completed_by *_at *_by *_ago *_id *_count lead_time prediction last_action bulk_created task project "
            "parent_prediction parent_annotation created_username model_version reviews history comments state agreement* "
            "reviewer* accepted rejected annotator draft*",
        ),
        "region": Schema(
            "value:keys! type id to_name original_width original_height image_rotation:number item_index:number",
            "from_name origin readonly hidden locked score meta parentID parent_id region_id from_id to_id direction selected "
            "highlighted isNew isInsideGroup cleanId",
            "`image_rotation` and `item_index` other than 0; a type that is neither a shape nor a remark",
        ),
        "rectangle": Schema(
            "x:number! y:number! width:number! height:number! rotation:number",
            _LABEL_STUDIO_VALUE,
            "brush, bitmask, key point, vector; a shape without a label or with two",
        ),
        "polygon": Schema("points:points!", _LABEL_STUDIO_VALUE + " closed"),
        "ellipse": Schema(
            "x:number! y:number! radiusX:number! radiusY:number! rotation:number", _LABEL_STUDIO_VALUE
        ),
    },
}
"""By format and part of its files."""
