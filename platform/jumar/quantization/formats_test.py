"""What a chip lacks, and the arithmetic that stands in for it: every code, the midpoints and their neighbours."""

import pytest
import torch

from jumar.quantization import chips, formats


@pytest.mark.parametrize(
    "chip, fmt, weight_only, lacking",
    [
        ("Ascend910B2", "int8", False, False),
        ("Ascend910B2", "fp8", False, True),
        ("Ascend910_9392", "mxfp8", False, True),
        ("Ascend910B4-1", "int4", True, False),
        ("Ascend950PR_9579", "fp8", False, False),
        ("Ascend950PR", "mxfp4", False, False),
        ("Ascend310P3", "int4", True, True),
        ("Ascend310P3", "int8", False, False),
        ("Ascend2030", "fp8", False, False),  # of a chip that nobody knows, nothing is known to be lacking
    ],
)
def test_what_chips_lack(chip, fmt, weight_only, lacking):
    assert formats.lacks(chip, fmt, weight_only) is lacking


def test_a_longer_name_wins():
    assert formats.row_of("Ascend910B2C") == "Ascend910B2C" and formats.row_of("Ascend910B4-1") == "Ascend910B4-1"


def test_refused_with_the_alternative(monkeypatch):
    monkeypatch.setattr(formats, "_chip", lambda: "Ascend910B2")
    with pytest.raises(formats.FormatError) as refused:
        formats.is_emulated("fp8")
    assert str(refused.value) == (
        "FP8 needs Ascend950; this is Ascend910B2: use an INT8 W8A8 checkpoint (w8a8), or --additional-config "
        "'{\"emulate_formats\": true}' to run it emulated"
    )
    monkeypatch.setattr(formats, "asks_for_emulation", lambda config: True)
    assert formats.is_emulated("fp8") and not formats.is_emulated("int8")


def test_every_chip_has_a_family():
    assert chips.COMPUTES.keys() == chips.WEIGHTS.keys() == chips.FAMILIES.keys()


def neighbourhood(values: torch.Tensor) -> torch.Tensor:
    """Numbers of a format, the midpoints between them, and the float32 numbers beside each, of both signs."""
    values = values.sort().values
    points = torch.cat([values, (values[1:] + values[:-1]) / 2, values * 1.5])
    around = torch.cat([points, torch.nextafter(points, points + 1), torch.nextafter(points, points - 1)])
    return torch.cat([around, -around])


def test_e4m3_rounds_as_torch_does():
    codes = torch.arange(127, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    x = neighbourhood(codes)
    want = torch.clamp(x, -448, 448).to(torch.float8_e4m3fn).float()
    assert torch.equal(formats.round_to_e4m3(x), want)


def test_e2m1_rounds_to_the_nearest_with_ties_to_even():
    numbers = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    x = neighbourhood(numbers)
    distance = (x.abs()[:, None].double() - numbers.double()).abs()
    nearest = distance == distance.amin(1, keepdim=True)
    even = torch.arange(8) % 2 == 0
    chosen = torch.where(nearest.sum(1, keepdim=True) > 1, nearest & even, nearest).double().argmax(1)
    assert torch.equal(formats.round_to_e2m1(x), numbers[chosen] * torch.where(x < 0, -1.0, 1.0))


@pytest.mark.parametrize("k", [32, 100, 576])
def test_groups_have_a_scale_of_their_own(k):
    x = torch.randn(3, k) * torch.logspace(-3, 3, k)
    got = formats.emulate_groups(x, 128)
    for start in range(0, k, 128):
        part = x[:, start : start + 128]
        scale = part.abs().amax(1, keepdim=True) / 448
        want = (part / scale).to(torch.float8_e4m3fn).float() * scale
        assert torch.equal(got[:, start : start + 128], want)


def test_mx_takes_the_power_of_two_below_the_largest():
    x = torch.zeros(1, 64)
    x[0, 0], x[0, 1], x[0, 40] = 4.0, 3.75, 0.75
    # Largest exponents 2 and -1: scales 2^(2 - 2) and 2^(-1 - 2) for E2M1, whose 6 is 1.5 * 2^2.
    got = formats.emulate_mx(x, "mxfp4")
    assert got[0, 0] == 4.0 and got[0, 1] == 4.0 and got[0, 40] == 0.75
    assert formats.emulate_mx(torch.zeros(2, 40), "mxfp8").abs().max() == 0
