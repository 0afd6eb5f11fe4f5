"""Stage 2: rotations of real cameras, matched by translation and transferred to panoramic clips (supplement A.3)."""
