"""The page on which a person makes a shot: lens, path, prompt, video."""
