# SPDX-License-Identifier: Apache-2.0
"""From a cell's audit log and recordings to a candidate bundle and its comparison with the active one."""
