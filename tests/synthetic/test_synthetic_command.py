"""Command line of the maker."""

from __future__ import annotations

from pathlib import Path

import pytest

from export.synthetic.__main__ import main


def test_makes_the_named_variant_and_reports_on_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "made"
    arguments = ["--size", "tiny", "--variant", "small-patch", "--out", str(out)]
    assert main([*arguments, "--model-format", "sharded", "--vae-format", "pth"]) == 0
    assert '"patch_size": 2' in (out / "config.json").read_text()
    assert (out / "audiovae.pth").is_file()
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "small-patch" in printed.err


def test_existing_folder_has_its_own_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--size", "tiny", "--out", str(tmp_path / "made")]
    assert main(arguments) == 0
    assert main(arguments) == 6
    assert "--force" in capsys.readouterr().err
    assert main([*arguments, "--force"]) == 0


@pytest.mark.parametrize(("size", "variant"), [("tiny", "nonsense"), ("full", "mup")])
def test_unknown_variant_is_a_usage_error(
    size: str, variant: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "made"
    assert main(["--size", size, "--variant", variant, "--out", str(out)]) == 2
    assert "There are:" in capsys.readouterr().err
    assert not out.exists()
