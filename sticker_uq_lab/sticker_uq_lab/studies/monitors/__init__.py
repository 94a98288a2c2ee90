# SPDX-License-Identifier: Apache-2.0
"""The monitor study, offline (S001, Weiss et al. 2022), on attacked, ambiguous and corrupted crops of pictures; the study of
task networks (S003, Ullah et al.).
"""
