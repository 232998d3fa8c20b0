"""How much memory the kinds of picture need that need most, by the pixel: what `benchmarks/memory.py` finds at full size."""

import subprocess
import sys

from tests.conftest import ROOT

# At this size what a process needs whatever the picture counts less than what it needs for the picture.
MEGAPIXELS = 24
KINDS = ("png rgba 16 bit", "tiff cmyk 16 bit", "tiff rgb sideways")


def test_no_picture_is_copied_more_often_than_a_process_can_hold() -> None:
    """R87: validation and decoding of 150 megapixels stay below 2 GiB, as far as a smaller picture can tell."""
    script = str(ROOT / "benchmarks" / "memory.py")
    done = subprocess.run(
        [sys.executable, script, "--megapixels", str(MEGAPIXELS), *KINDS], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 3 + len(KINDS), f"{done.stdout}\n{done.stderr}"
