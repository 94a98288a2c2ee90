# SPDX-License-Identifier: Apache-2.0
"""Build of the ROS 2 package sticker_uq_moveit_driver (ament_python)."""

from glob import glob

from setuptools import setup

NAME = "sticker_uq_moveit_driver"

setup(
    name=NAME,
    version="0.4.0",
    description="Example of an arm driver for the cell of sticker_uq, with MoveIt 2 and ros2_control",
    license="Apache-2.0",
    maintainer="sticker_uq maintainers",
    maintainer_email="sticker-uq@users.noreply.github.com",
    packages=[NAME],
    data_files=[
        ("share/ament_index/resource_index/packages", [f"resource/{NAME}"]),
        (f"share/{NAME}", ["package.xml"]),
        (f"share/{NAME}/launch", glob("launch/*.launch.py")),
        (f"share/{NAME}/config", glob("config/*.yaml")),
    ],
    install_requires=["setuptools"],
    extras_require={"test": ["pytest"]},  # colcon test runs pytest then
    zip_safe=False,
    entry_points={"console_scripts": [f"driver = {NAME}.driver:main", f"stop_arm = {NAME}.stop_arm:main"]},
)
