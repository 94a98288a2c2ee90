# SPDX-License-Identifier: Apache-2.0
"""Many recordings of many cells: assessed and judged into Parquet files, and figures of each cell from them."""
