# SPDX-License-Identifier: Apache-2.0
"""What the files of labelling tools may say: keys that are read, keys that say nothing about boxes, classes and pictures, and,
as an error, every other key.
"""

import re
from collections import Counter
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar
from xml.etree.ElementTree import Element

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from sticker_uq.io.faults import Faults
from sticker_uq.io.reading import MOST_JSON, marked_encoding, read_bytes, shown
from sticker_uq.scene import InvalidInput
from sticker_uq_lab.datasets.importing.labelled_picture import number

Number = Annotated[float, BeforeValidator(lambda value: number(value, "value"))]
_SUSPECT = re.compile(r"rotat|angle|theta|orient|b_?box|bnd|points|polygon|offset|class|category", re.I)
"""Of attributes that a person may have defined: names that may stand for geometry or a class."""
_SAYS_NOTHING: tuple[object, ...] = (None, "", "0", "0.0", 0, [], {})


class Schema(BaseModel):
    """The fields are read. ``harmless``: patterns of keys that are passed over; ``refused``: words about what is an error."""

    model_config = ConfigDict(extra="forbid")
    harmless: ClassVar[str] = ""
    refused: ClassVar[str] = ""
    unknown: tuple[str, ...] = Field((), exclude=True)


S = TypeVar("S", bound=Schema)


def unknown_key(part: str, key: str, count: int, where: str) -> str:
    return (
        f"{where}: key {shown(key)} ({count} times in {part}) is not known: it may change a box, a class or the picture; look "
        f"at it, and give --ignore-key {shown(key)[1:-1]} if it does not"
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

    def left(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """``content`` without the ignored keys."""
        self._used.update(set(content).intersection(self.ignored))
        return {key: value for key, value in content.items() if key not in self.ignored}

    def read(self, schema: type[S], content: object, where: str) -> S:
        """InvalidInput for a value that is not as the schema has it; what is unknown is in the result."""
        if not isinstance(content, dict):
            raise InvalidInput(f"{where}: {shown(content)}: expected {schema.__name__.lower()} with keys")
        fields, patterns = set(schema.model_fields) - {"unknown"}, schema.harmless.split()
        known, unknown = dict[str, Any](), list[str]()
        for key, value in self.left(content).items():
            if key in fields:
                known |= {} if value is None or value == "" else {key: value}
            elif not any(fnmatchcase(key, one) for one in patterns if one != "*" or not _SUSPECT.search(key)):
                unknown += [] if value in _SAYS_NOTHING else [key]
        try:
            return schema(**known, unknown=tuple(unknown))
        except ValidationError as error:
            first = error.errors()[0]
            key = str(first["loc"][0])
            expected = schema.model_fields[key].description or (
                "a number" if schema.model_fields[key].annotation is float else "it to be there"
            )
            also = f"; not read: {', '.join(map(shown, unknown))}" if unknown else ""
            raise InvalidInput(
                f"{where}: {key} {shown(content.get(key))}: expected {expected}{also}"
            ) from None

    def note(self, part: str, unknown: tuple[str, ...], where: str) -> None:
        for key in unknown:
            self._unknown[part, key] += 1
            self._first.setdefault((part, key), where)

    def header(self, schema: type[S], content: object, where: str) -> S:
        """:meth:`read` of what is no label of a class, and so cannot be left out with it."""
        found = self.read(schema, content, where)
        self.note(schema.__name__, found.unknown, where)
        return found

    def check_boxes(self, path: Path, faults: Faults) -> None:
        """A fault where another number of shapes is written in ``path`` than were found."""
        data = read_bytes(path, MOST_JSON)
        written = boxes_written(data.decode(marked_encoding(data) or "utf-8", "replace"))
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


class CocoFile(Schema):
    images: Any
    annotations: Any
    categories: Any
    harmless = "info license licenses type version contributor description date_created url"
    refused = "a file without `categories`; COCO panoptic (`segments_info`)"


class CocoImage(Schema):
    id: Any
    file_name: str = Field(description="the name of a picture")
    width: Any = None
    height: Any = None
    path: str = Field("", description="text")
    workpiece_id: str = Field("", description="the name of a laptop")
    harmless = (
        "license license_id licenses coco_url flickr_url url date_captured date captured_at datetime *_at *_by timestamp seed "
        "source_name extra dataset_id category_ids annotated annotating num_annotations metadata deleted milliseconds events "
        "regenerate_thumbnail is_modified video_id frame_id frame_index frame_num seq_* channels depth tags attributes "
        "caption subset split md5 sha* hash checksum size file_size format neg_category_ids not_exhaustive_category_ids "
        "rights_holder location case source added lost request_id stamp_ns person"
    )


class CocoAnnotation(Schema):
    id: Any
    image_id: Any
    category_id: Any
    bbox: Any = Field(None, description="four numbers")
    segmentation: Any = None
    area: Any = None
    iscrowd: Any = 0
    bbox_mode: Any = 1
    category_name: str = Field("", description="the name of the category")
    attributes: Any = None
    difficult: Any = 0
    ignore: Any = 0
    harmless = (
        "keypoints num_keypoints caption score confidence probability color isbbox metadata creator events width height "
        "occluded occlusion truncated truncation visibility visible whole_bbox track_id instance_id *_at *_by datetime date "
        "comment note annotator source uuid guid subset tags license probabilities ambiguous extra"
    )
    refused = (
        "`bbox_mode` other than 1; a box that contradicts its polygons or its area; a mask without a box"
    )


class CocoAttributes(Schema):
    rotation: Number = Field(0, description="degrees")
    harmless = "*"


class CocoCategory(Schema):
    id: Any
    name: Any = None
    harmless = (
        "supercategory color isthing keypoints skeleton keypoint_colors metadata creator synonyms synset def frequency "
        "image_count instance_count display_name attributes parent parent_id description"
    )


class LabelStudioTask(Schema):
    """A task of the JSON export."""

    data: Any
    annotations: Any
    harmless = (
        "id predictions drafts meta *_at *_by *_count *_id total_* cancelled_annotations comment_authors comments project "
        "file_upload is_labeled overlap avg_lead_time lead_time draft_exists state allow_skip *agreement* reviews reviewers "
        "annotators annotations_results annotations_ids predictions_* storage_filename ground_truth"
    )


class LabelStudioAnnotation(Schema):
    result: Any
    was_cancelled: bool = Field(False, description="true or false")
    ground_truth: bool = Field(False, description="true or false")
    harmless = (
        "id completed_by *_at *_by *_ago *_id *_count lead_time prediction last_action bulk_created task project "
        "parent_prediction parent_annotation created_username model_version reviews history comments state agreement* "
        "reviewer* accepted rejected annotator draft*"
    )


class LabelStudioRegion(Schema):
    value: Any
    type: Any = None
    id: Any = None
    to_name: Any = None
    original_width: Any = None
    original_height: Any = None
    image_rotation: Number = Field(0, description="0")
    item_index: Number = Field(0, description="0")
    harmless = (
        "from_name origin readonly hidden locked score meta parentID parent_id region_id from_id to_id direction selected "
        "highlighted isNew isInsideGroup cleanId"
    )
    refused = "`image_rotation` and `item_index` other than 0; a type that is neither a shape nor a remark"


class LabelStudioRectangle(Schema):
    x: Number
    y: Number
    width: Number
    height: Number
    rotation: Number = Field(0, description="degrees")
    harmless = "*labels choices text rating taxonomy number"
    refused = "brush, bitmask, key point, vector; a shape without a label or with two"


class LabelStudioPolygon(Schema):
    points: list[tuple[Number, Number]] = Field(min_length=1, description="a list of x, y")
    harmless = LabelStudioRectangle.harmless + " closed"


class LabelStudioEllipse(Schema):
    x: Number
    y: Number
    radiusX: Number  # noqa: N815 - Label Studio's names
    radiusY: Number  # noqa: N815
    rotation: Number = Field(0, description="degrees")
    harmless = LabelStudioRectangle.harmless


class VocFile(Schema):
    filename: str = Field("", description="the name of a picture")
    path: str = Field("", description="text")
    folder: str = Field("", description="text")
    size: Any = None
    object: Any = None
    harmless = "source owner segmented verified database relation"


class VocSize(Schema):
    width: Any = None
    height: Any = None
    harmless = "depth"


class VocObject(Schema):
    name: Any
    bndbox: dict[str, Any] = Field(
        description="a single <bndbox>; export boxes, or draw the box around the object"
    )
    polygon: dict[str, Any] | None = Field(None, description="<x1>, <y1>, ...")
    attributes: Any = None
    difficult: Any = None
    type: str = Field("", description="bndbox")
    harmless = "pose truncated occluded part actions point id deleted verified date crowd confidence score source annotator"
    refused = "an object without `bndbox` or with several, or whose polygon contradicts it; `robndbox`"


class VocBox(Schema):
    xmin: Number
    ymin: Number
    xmax: Number
    ymax: Number


class CvatFile(Schema):
    image: Any = None
    harmless = "version meta"
    refused = "`track` (*CVAT for video*)"


class CvatImage(Schema):
    name: Any
    width: Any = None
    height: Any = None
    harmless = "id subset task_id job_id project_id"


class CvatShape(Schema):
    label: Any
    harmless = "source occluded z_order group_id keyframe attribute score"


class CvatBox(CvatShape):
    xtl: Number
    ytl: Number
    xbr: Number
    ybr: Number
    rotation: Number = Field(0, description="degrees")
    refused = "`points`, `polyline`, `cuboid`, `skeleton`"


class CvatPolygon(CvatShape):
    points: str = Field(description="x1,y1;x2,y2;...")


class CvatEllipse(CvatShape):
    cx: Number
    cy: Number
    rx: Number
    ry: Number
    rotation: Number = Field(0, description="degrees")


class CvatMask(CvatShape):
    left: Number
    top: Number
    width: Number
    height: Number
    rle: str = Field("", description="numbers")
    refused = "`rle` of another size than the box"


class YoloNames(Schema):
    """data.yaml; classes.txt and obj.names have one name a line."""

    names: Any
    nc: Any = None
    kpt_shape: Any = None
    train: Any = None
    val: Any = None
    test: Any = None
    path: Any = None
    harmless = (
        "download roboflow flip_idx kpt_names channels license url description author date version task stride imgsz batch "
        "minival colors skeleton yaml_file val_* train_* split end2end args dataset*"
    )
    refused = "lines with a confidence; key points without `kpt_shape`; `nc` that contradicts `names`; lost label files"


SCHEMAS: dict[str, tuple[type[Schema], ...]] = {
    "coco": (CocoFile, CocoImage, CocoAnnotation, CocoAttributes, CocoCategory),
    "voc": (VocFile, VocSize, VocObject, VocBox),
    "yolo": (YoloNames,),
    "cvat": (CvatFile, CvatImage, CvatBox, CvatPolygon, CvatEllipse, CvatMask),
    "label-studio": (
        LabelStudioTask, LabelStudioAnnotation, LabelStudioRegion, LabelStudioRectangle, LabelStudioPolygon, LabelStudioEllipse,
    ),
}  # fmt: skip
