# SPDX-License-Identifier: Apache-2.0
# sticker_uq
from sticker_uq import Detector, read_image

detector = Detector()

# %% picture
detector.judge(read_image("lid.jpg")).save("judged.png")

# %% table
detector.judge(read_image("lid.jpg")).table().to_csv("judged.csv")

# %% video
detector.save_video("lids.mp4", "judged.mp4")
