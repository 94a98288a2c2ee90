# SPDX-License-Identifier: Apache-2.0
"""Node ``shadow``: counts what a candidate bundle would decide differently."""
