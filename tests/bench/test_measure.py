"""What is measured: components, occurrences, work and limits. No test looks at the time itself."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from watched_backend import WatchedBackend

from edge_runtime.bench import probe as probing
from edge_runtime.bench.cold import cold_run, drop_from_memory
from edge_runtime.bench.machine import Machine, cpu_model
from edge_runtime.bench.measure import (
    BenchPlan,
    Limits,
    component_work,
    reached_of,
    run_bench,
    sample_run,
)
from edge_runtime.bench.probe import probe_machine, product_model
from edge_runtime.bench.recorder import Recorder, RecordingBackend
from edge_runtime.bench.results import Probe
from edge_runtime.bench.work import Product, Work
from edge_runtime.bundle import Bundle
from edge_runtime.errors import BackendError, UsageError
from edge_runtime.loader import LoadOptions
from edge_runtime.speech import SpeechOptions
from edge_runtime.voice import Voice

PLAN = BenchPlan(patches=3, runs=2, options=SpeechOptions(steps=4), cold=False)


@pytest.fixture
def quick_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "_SECONDS", 0.0)
    monkeypatch.setattr(probing, "_BUFFER_BYTES", 1 << 20)


def test_runs_are_recorded_as_the_graphs_ran(int8_bundle: Path) -> None:
    backend, recorder = WatchedBackend(), Recorder()
    voice = Voice.load(int8_bundle, backend=RecordingBackend(backend, recorder))
    run = sample_run(voice, PLAN)
    taken = recorder.take()
    by_graph: dict[str, int] = {}
    for each, count in taken.items():
        by_graph[each.graph] = by_graph.get(each.graph, 0) + count
    assert by_graph == dict(backend.watch.runs)
    assert recorder.take() == {}
    work = component_work(Bundle.open(int8_bundle, verify=False), taken, "f32")
    assert set(work) == {
        "prefill", "lm_step", "flow", "flow_time", "patch_encoder", "vae_decode"
    }  # fmt: skip
    assert all(each.uncounted == 0 for each in work.values())
    assert run.metrics.patches == PLAN.patches


def test_every_run_has_the_patches_that_were_asked_for(f32_voice: Voice) -> None:
    run = sample_run(f32_voice, PLAN)
    assert len(run.patch_ms) == len(run.patch_cpu_s) == PLAN.patches - 1
    # Every patch is solved and decoded; the step comes between two of them.
    assert {name: len(values) for name, values in run.per_patch.items()} == {
        "flow": 3, "vae_decode": 3, "patch_encoder": 2, "lm_step": 2
    }  # fmt: skip
    assert set(run.per_request) == {"encode", "text", "prefill"}


@pytest.mark.usefixtures("quick_probe")
def test_a_benchmark_names_every_component_with_its_work(int8_bundle: Path) -> None:
    steps: list[str] = []
    found = run_bench(int8_bundle, LoadOptions(threads=1), PLAN, steps.append)
    counts = {name: (each.per, each.ms.count) for name, each in found.components.items()}
    assert counts == {
        "encode": ("request", 2), "text": ("request", 2), "prefill": ("request", 2),
        "flow": ("patch", 6), "vae_decode": ("patch", 6), "patch_encoder": ("patch", 4),
        "lm_step": ("patch", 4),
    }  # fmt: skip
    assert len(found.patch_ms.runs) == PLAN.runs
    assert found.components["text"].reached is None
    assert set(found.probe.gflops) == {"f32", "int8", "int8-32", "int8-128"}
    step = found.components["lm_step"].reached
    prefill = found.components["prefill"].reached
    assert step is not None
    assert prefill is not None
    # Same weights, as many times the products as there are rows.
    assert step.weight_mb == prefill.weight_mb
    assert prefill.gflop["int8-128"] > 5 * step.gflop["int8-128"]
    assert found.cold is None
    assert step.kernels_ms is not None
    decode = found.components["vae_decode"].reached
    assert decode is not None
    # Convolutions only.
    assert decode.kernels_ms is None
    assert (found.setup.threads, found.setup.patches, found.setup.weights) == (1, 3, "int8")
    assert steps[0] == "loading"


def test_work_is_per_occurrence_and_the_limit_is_the_tighter_one() -> None:
    from samples import stat

    probe = Probe(threads=1, read_gbs=2.0, gflops={"f32": 100.0, "int8": 400.0})
    small, large = Product("int8", 1, 2, 3), Product("f32", 1, 2, 3)
    limits = Limits(probe, {small: 3.0, large: 5.0})
    products = Counter({small: 6, large: 4})
    total = Work({"f32": 5 * 10**9, "int8": 20 * 10**9}, 400 * 10**6, products)
    reached = reached_of(total, stat(200.0, 400.0), limits)
    assert reached is not None
    assert reached.gflop == {"f32": 5.0, "int8": 20.0}
    # 5 / 100 + 20 / 400 s against 0.2 / 2 s.
    assert (reached.limit, reached.limit_ms, reached.fraction) == ("compute", 100.0, 0.3333)
    assert (reached.gflops, reached.gbs) == (83.33, 0.667)
    # Two occurrences: 6 products of 3 ms and 4 of 5 ms between them.
    assert reached.kernels_ms == 19.0
    assert Limits(probe).kernels_ms(total, 2) is None
    heavy = reached_of(Work({"f32": 10**9}, 10**9), stat(1000.0), limits)
    assert heavy is not None
    assert (heavy.limit, heavy.limit_ms) == ("memory", 500.0)
    assert reached_of(Work(), stat(1.0), limits) is None


@pytest.mark.parametrize(("field", "value"), [("patches", 1), ("patches", 2.5), ("runs", 0)])
def test_a_plan_that_measures_nothing_is_refused(field: str, value: object) -> None:
    with pytest.raises(UsageError, match=field):
        BenchPlan(**{field: value})  # type: ignore[arg-type]


def test_a_family_without_names_for_components_is_counted_by_graph(
    f32_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import edge_runtime.voxcpm2 as family

    backend = RecordingBackend(WatchedBackend(), recorder := Recorder())
    sample_run(Voice.load(f32_bundle, backend=backend), PLAN)
    monkeypatch.delattr(family, "component_of")
    work = component_work(Bundle.open(f32_bundle, verify=False), recorder.take(), "f32")
    assert {"lm", "flow", "flow_condition"} < set(work)


@pytest.mark.usefixtures("quick_probe")
def test_the_probe_measures_what_it_is_asked_for() -> None:
    found = probe_machine(["int8", "f32", "f32"], 2)
    assert set(found.gflops) == {"f32", "int8"}
    assert found.read_gbs > 0
    assert found.threads == 2


@pytest.mark.parametrize("format_", ["f32", "int8", "int8-128", "int8-32", "int4-32", "int4-128"])
@pytest.mark.parametrize("copies", [1, 3])
def test_every_probe_model_is_the_product_in_its_kernel(format_: str, copies: int) -> None:
    model = product_model(Product(format_, 5, 48, 32), copies)
    assert len(model.graph.node) == copies
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    results = session.run(None, {"x": np.ones((5, 48), np.float32)})
    assert [result.shape for result in results] == [(5, 32)] * copies


def test_a_cold_run_is_a_process_of_its_own(f32_bundle: Path) -> None:
    found = cold_run(f32_bundle, LoadOptions(threads=1), "Hello.", None, PLAN.speech_options())
    parts = found.import_ms + found.load_ms + found.first_audio_ms
    assert found.start_to_audio_ms == pytest.approx(parts, abs=1)


def test_a_cold_run_that_fails_says_why(f32_bundle: Path) -> None:
    with pytest.raises(BackendError, match=r"none\.wav"):
        cold_run(
            f32_bundle, LoadOptions(threads=1), "Hello.", "none.wav", PLAN.speech_options()
        )  # fmt: skip


def test_files_that_are_gone_need_not_be_dropped(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    drop_from_memory([tmp_path / "a", tmp_path / "none"])


def test_the_machine_is_read_from_its_tree(tmp_path: Path) -> None:
    (tmp_path / "proc/device-tree").mkdir(parents=True)
    (tmp_path / "proc/cpuinfo").write_text("processor : 0\nBogoMIPS : 48.00\n")
    (tmp_path / "proc/device-tree/model").write_bytes(b"Radxa ROCK 5B\0")
    (tmp_path / "proc/meminfo").write_text("MemTotal:  2048 kB\n")
    assert cpu_model(tmp_path) == "Radxa ROCK 5B"
    assert Machine.read(tmp_path).memory_bytes == 2 << 20
    (tmp_path / "proc/cpuinfo").write_text("model name\t: Some CPU\n")
    assert cpu_model(tmp_path) == "Some CPU"
    assert Machine.read(tmp_path / "none").cpu
