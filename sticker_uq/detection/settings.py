# SPDX-License-Identifier: Apache-2.0
"""What a stochastic detector is made of: one validated model shared by the nodes and the command line."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from sticker_uq.detection.names import DEFAULT_MODEL, MODEL_NAMES, check_name
from sticker_uq.io.setting_fields import Frozen

Precision = Literal["float32", "tf32", "bfloat16", "float16"]

ModelName = Annotated[str, AfterValidator(check_name)]
"""The name of a detector in the registry: a built-in one, or one that another package registers."""


class DetectorSettings(Frozen):
    """Settings of a stochastic detector. A bad value raises pydantic's ``ValidationError``."""

    model: ModelName = Field(
        DEFAULT_MODEL,
        description=f"sticker detection model: {', '.join(MODEL_NAMES)}, or one that a package registers",
    )
    weights: str = ""
    """weights file (.safetensors, .pth); empty: the model's packaged weights"""
    dropout_rate: float = Field(0.4, ge=0.0, le=0.9)
    """probability that a pass drops an element of a feature map"""
    dropout_site: Literal["in", "out"] = "in"
    """SSD models only: dropout on the inputs of the detection head or on its outputs"""
    passes: int = Field(20, ge=1, le=200, description="stochastic passes per image (T)")
    score_floor: float = Field(0.2, ge=0.01, le=0.99)
    """a box is kept when its best foreground probability is above this"""
    nms_threshold: float = Field(0.5, ge=0.05, le=0.95)
    """IoU above which the weaker of two boxes of one class is dropped"""
    max_detections: int = Field(100, ge=1, le=1000, description="boxes kept per pass")
    min_size: int = Field(480, ge=64, le=2048)
    """FPN models only: shorter side of the resized image, px"""
    device: str = Field("auto", pattern=r"^(auto|cpu|cuda(:\d+)?)$", description="auto, cpu, cuda or cuda:N")
    precision: Precision = "float32"
    """numbers of the network: float32 (IEEE) or bfloat16, on a GPU also tf32 (a mantissa of 10 bits in products) or float16; the
    pass without dropout is float32 or tf32"""
    passes_at_once: int = Field(0, ge=0, le=200)
    """most stochastic passes computed together; fewer take less memory of a GPU and round differently in the last bits; 0:
    automatic (all on a GPU)"""
    graphs: bool = False
    """whether a GPU is given its kernels as CUDA graphs, which takes memory and no waiting for the processor; no card has run
    them yet"""
    threads: int = Field(1, ge=0, le=256)
    """threads of torch in this process; another number rounds differently in the last bits; 0: one per core"""
    seed: int = Field(0, ge=0, le=2**31 - 1, description="seed of the dropout masks")
