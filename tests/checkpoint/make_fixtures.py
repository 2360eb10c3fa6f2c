"""Regenerates ``fixtures/``, files that a real torch wrote (2.13, CPU).

Run ``python tests/checkpoint/make_fixtures.py`` in an environment with torch. Tests only read
the files, so they pass without it.
"""

from __future__ import annotations

from pathlib import Path

FIXTURES = Path(__file__).parent / "fixtures"


def main() -> None:
    """Write every fixture."""
    import torch

    base = torch.arange(12, dtype=torch.float32).reshape(3, 4) / 4
    state = {
        "f32": base,
        "transposed": base.t(),
        "last_rows": base[1:],
        "bf16": base.bfloat16(),
        "f16": base.half(),
        "parameter": torch.nn.Parameter(base[:, 0].clone()),
        "steps": torch.tensor(7),
    }
    FIXTURES.mkdir(exist_ok=True)
    torch.save({"state_dict": state, "epoch": 3}, FIXTURES / "nested.pth")
    torch.save(state, FIXTURES / "protocol4.pth", pickle_protocol=4)
    norm = torch.nn.BatchNorm1d(2).state_dict()
    torch.save(norm, FIXTURES / "module.pth")
    torch.save(norm, FIXTURES / "legacy.pth", _use_new_zipfile_serialization=False)
    scripted = torch.jit.script(torch.nn.Identity())
    torch.jit.save(scripted, FIXTURES / "script.pth")


if __name__ == "__main__":
    main()
