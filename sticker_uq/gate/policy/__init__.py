# SPDX-License-Identifier: Apache-2.0
"""The policy that the gate judges by: the file, its schema and limits, and the verdict on one object."""
