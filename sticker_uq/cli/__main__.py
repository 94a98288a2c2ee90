"""``python -m sticker_uq.cli``."""

from sticker_uq.cli import main

main()
