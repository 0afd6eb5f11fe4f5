"""Size of the desk model, of the clips it is trained on, and of the frames that its estimators take."""

FRAMES, HEIGHT, WIDTH = 17, 64, 112
FPS = 8.0
