# SPDX-License-Identifier: Apache-2.0
"""The tests; a package, so that they find ``test.helpers`` and not the interpreter's own ``test``."""
