# SPDX-License-Identifier: Apache-2.0
"""The node ``supervisor`` as a process of its own: ``python -m test.nodes.supervisor.process``."""

from sticker_uq.nodes.supervisor.node import main

if __name__ == "__main__":
    main()
