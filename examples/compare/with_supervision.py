# SPDX-License-Identifier: Apache-2.0
# supervision 0.31.2, with a detector of ultralytics
import cv2
import supervision as sv
from ultralytics import YOLO

model = YOLO("best.pt")

# %% picture
image = cv2.imread("lid.jpg")
detections = sv.Detections.from_ultralytics(model(image)[0])
boxes = sv.BoxAnnotator().annotate(image, detections)
cv2.imwrite("annotated.png", sv.LabelAnnotator().annotate(boxes, detections))

# %% table
with sv.CSVSink("objects.csv") as sink:
    sink.append(sv.Detections.from_ultralytics(model("lid.jpg")[0]))


# %% video
def annotate(frame, index):
    detections = sv.Detections.from_ultralytics(model(frame)[0])
    boxes = sv.BoxAnnotator().annotate(frame, detections)
    return sv.LabelAnnotator().annotate(boxes, detections)


sv.process_video("lids.mp4", "annotated.mp4", annotate)
