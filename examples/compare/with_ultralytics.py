# SPDX-License-Identifier: Apache-2.0
# ultralytics 8.4.190
from pathlib import Path

from ultralytics import YOLO

model = YOLO("best.pt")

# %% picture
model("lid.jpg")[0].save("annotated.png")

# %% table
Path("objects.csv").write_text(model("lid.jpg")[0].to_csv())

# %% video
model("lids.mp4", save=True)  # to runs/detect/predict
