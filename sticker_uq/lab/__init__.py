"""What a running cell never needs: rendering, corruptions, data sets, training, attacks, robustness assessment, studies."""
