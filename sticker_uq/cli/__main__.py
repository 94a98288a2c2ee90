# SPDX-License-Identifier: Apache-2.0
"""``python -m sticker_uq.cli``."""

from sticker_uq.cli import main

if __name__ == "__main__":  # worker processes also import this module
    main()
