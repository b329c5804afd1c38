"""What is asked of the measurements: which arms, which controls, which limits."""
