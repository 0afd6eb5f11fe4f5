import torch
from recipes.desk.objects import KINDS, ColorCheck, named


def test_a_caption_names_the_colours_of_its_objects_only():
    found = named("a red tower, two blue balls and a pine on white grass, hills on the horizon, under a clear sky")
    assert {kind for kind, there in zip(KINDS, found) if there} == {"red", "blue", "tree"}
    assert not named("an empty plain on snow, hills on the horizon, under a clear sky").any()


def test_the_check_sees_patches_and_not_the_scene():
    torch.manual_seed(0)
    check = ColorCheck()
    video = torch.randint(0, 256, (1, 17, 64, 112, 3), dtype=torch.uint8)
    changed = video.clone()
    changed[:, :, :, 60:] = 0
    frames, others = (check.patches(clip[:, 0].movedim(-1, 1).float() / 127.5 - 1) for clip in (video, changed))
    reach = 60 // 8 - 1
    assert torch.equal(frames[..., :reach], others[..., :reach])
    assert not torch.equal(frames[..., -1], others[..., -1])
    assert check(video).shape == (1, len(KINDS)) and torch.equal(check(video, 0.0), check(video))
