"""Training: recipes, clips encoded once, the loop, checkpoints."""
