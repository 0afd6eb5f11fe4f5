"""360 degree footage to camera-diverse training clips."""
