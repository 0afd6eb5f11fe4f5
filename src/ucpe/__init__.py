"""Camera control for video transformers: Unified Camera Positional Encoding."""
