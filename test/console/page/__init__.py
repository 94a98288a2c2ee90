# SPDX-License-Identifier: Apache-2.0
"""The operator's page in one real browser."""
