# SPDX-License-Identifier: Apache-2.0
"""A person before a whole cell; a package, like the tests of the page, because of its fixtures."""
