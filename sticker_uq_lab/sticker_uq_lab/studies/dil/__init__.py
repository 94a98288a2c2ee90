# SPDX-License-Identifier: Apache-2.0
"""The DiL study, offline (S002, Giloni et al. 2025): signals recorded on abnormal scenes, tables of them, report. The method
itself: sticker_uq.perception.dil.
"""
