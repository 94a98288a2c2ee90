# SPDX-License-Identifier: Apache-2.0
"""What several tests of the lab need; those of the core are in ``test.helpers``."""
