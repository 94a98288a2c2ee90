"""What a running cell does not need: rendering, corruptions, data sets, training, attacks, robustness assessment, studies."""
