"""What makes stochastic passes fast, on a processor and on a GPU; tested against torchvision's own modules."""
