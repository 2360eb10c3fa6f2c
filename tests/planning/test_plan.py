"""Plans: every profile, memory against a board's, times from figures, what would change them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from device_profiles.figures import Figure, FiguresSection
from device_profiles.layers import ProfileStore
from device_profiles.schema import Profile
from device_profiles.validation import validated
from edge_runtime.bench.work import Product, Work, graph_work
from edge_runtime.bundle import Bundle
from edge_runtime.errors import CapacityError, UsageError
from edge_runtime.plan.estimate import reformatted, run_times
from edge_runtime.plan.kernels import ROW_SHARES, row_share, weight_bytes
from edge_runtime.plan.memory import measured_costs
from edge_runtime.plan.planner import Plan, Planner
from edge_runtime.plan.request import Attention, PlanRequest
from edge_runtime.plan.speeds import UnknownSpeedError, speeds_of
from edge_runtime.voxcpm2 import plan as family_plan
from edge_runtime.voxcpm2.spec import VoxCpm2Spec

_GIB = 1 << 30
STORE = ProfileStore.shipped()
PROFILES = {file.name: validated(STORE.layers(file)) for file in STORE.candidates()}


def figure(value: float) -> Figure:
    return Figure(value=value, measured=True, source="made up for a test")


def plain_profile(**figures: float) -> Profile:
    section = FiguresSection(**{key: figure(value) for key, value in figures.items()})
    return Profile(name="made-up", title="Made up", figures=section)


FAST = plain_profile(memory_gb_s=100, cpu_f32_gflops=100, cpu_int8_gops=1000)


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_plans_the_full_size_bundle(planner: Planner, name: str) -> None:
    profile = PROFILES[name]
    plan = planner.plan(profile, PlanRequest())
    assert plan.no_estimate == ""
    assert plan.cpu is not None
    assert not plan.cpu.at_best
    assert {one.name for one in plan.cpu.components} == {
        "prefill", "flow_time", "flow", "vae_decode", "patch_encoder", "lm_step",
    }  # fmt: skip
    elsewhere = profile.flow.place != "cpu" or profile.providers[0].name != "cpu"
    assert (plan.placed is not None) is elsewhere
    assert plan.placed is None or plan.placed.at_best
    assert bool(plan.notes) is elsewhere
    assert plan.figures
    assert all(source for _, _, source in plan.figures)
    assert plan.memory.needed_gib in (4, 8)
    assert plan.memory.mapped_bytes > 2.4e9
    assert plan.rows == 60
    assert plan.prefix_rows == 36


def test_the_parts_of_a_patch_add_up(planner: Planner) -> None:
    times = planner.plan(PROFILES["rk3588-generic"], PlanRequest()).cpu
    assert times is not None
    per_patch = sum(one.ms for one in times.components if one.per == "patch")
    assert times.ms_per_patch == pytest.approx(per_patch, abs=0.2)
    late = {"patch_encoder", "lm_step"}
    first = sum(one.ms for one in times.components if one.name not in late)
    assert times.first_audio_ms == pytest.approx(first, abs=0.2)
    wall = times.first_audio_ms + 24 * times.ms_per_patch
    assert times.rtf == pytest.approx(wall / (25 * 160), abs=0.01)
    for one in times.components:
        parts = one.memory_ms + one.compute_ms + one.attention_ms + one.other_ms
        assert one.ms == pytest.approx(parts, abs=0.03)


def test_a_board_that_is_too_small_is_told_so_with_what_would_help(planner: Planner) -> None:
    plan = planner.plan(PROFILES["rk3588-generic"], PlanRequest(memory_bytes=3 * _GIB))
    assert plan.memory.verdict == "rereads"
    helps = {one.change for one in plan.alternatives if one.verdict == "fits"}
    assert "int4 weights in the LM: export --weights int4" in helps
    tiny = planner.plan(PROFILES["rk3588-generic"], PlanRequest(memory_bytes=_GIB // 2))
    assert tiny.memory.verdict == "refused"


def test_memory_of_a_jetson_is_known_and_of_a_rockchip_board_is_not(planner: Planner) -> None:
    jetson = planner.plan(PROFILES["jetson-orin-nano-8gb"], PlanRequest())
    assert any("copies of weights for a GPU" in note for note in jetson.notes)
    known = jetson.memory
    assert known.board_bytes == 8 * _GIB
    assert known.verdict == "fits"
    unknown = planner.plan(PROFILES["orange-pi-5"], PlanRequest()).memory
    assert unknown.board_bytes is None
    assert unknown.verdict == "unknown"
    assert unknown.needed_gib == 4


def test_the_profiles_own_limit_refuses(planner: Planner) -> None:
    profile = PROFILES["x86-vnni"]
    memory = profile.memory.model_copy(update={"hard_mib": 100})
    limited = profile.model_copy(update={"memory": memory})
    plan = planner.plan(limited, PlanRequest(memory_bytes=64 * _GIB))
    assert plan.memory.verdict == "refused"


def test_an_unprepared_bundle_holds_its_weights_in_memory(planner: Planner) -> None:
    profile = PROFILES["x86-vnni"]
    memory = profile.memory.model_copy(update={"prepare": "never"})
    plan = planner.plan(profile.model_copy(update={"memory": memory}), PlanRequest())
    assert plan.memory.mapped_bytes == 0
    assert plan.memory.anonymous_bytes > 2.4e9


def test_a_smaller_kv_type_takes_less(planner: Planner) -> None:
    profile, request = PROFILES["x86-vnni"], PlanRequest(patches=2000)
    kv = profile.kv.model_copy(update={"dtype": "f16"})
    half = profile.model_copy(update={"kv": kv})
    sizes = [_kv_bytes(planner.plan(each, request)) for each in (profile, half)]
    assert sizes[0] == 2 * sizes[1] == 2048 * 73_728


def _kv_bytes(plan: Plan) -> int:
    return next(row.planned for row in plan.memory.rows if row.name == "KV cache")


def test_more_rows_than_there_are_are_refused(planner: Planner) -> None:
    with pytest.raises(CapacityError, match="8192"):
        planner.plan(PROFILES["x86-vnni"], PlanRequest(patches=9000))


@pytest.mark.parametrize(
    "wrong",
    [{"patches": 0}, {"steps": 1}, {"preset": "best"}, {"reference_s": -1.0}, {"threads": 0},
     {"cfg": float("nan")}, {"text_rows": 0}],
)  # fmt: skip
def test_wrong_requests_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        PlanRequest(**wrong)  # type: ignore[arg-type]


def test_without_figures_there_is_no_estimate_but_a_memory_plan(planner: Planner) -> None:
    plan = planner.plan(plain_profile(memory_gb_s=10), PlanRequest(memory_bytes=8 * _GIB))
    assert plan.cpu is None
    assert plan.no_estimate == "the profile has no figure cpu_f32_gflops"
    assert plan.memory.verdict == "fits"


def test_fewer_steps_and_no_guidance_cost_less(planner: Planner) -> None:
    def flow(request: PlanRequest) -> float:
        times = planner.plan(PROFILES["x86-vnni"], request).cpu
        assert times is not None
        return next(one.ms for one in times.components if one.name == "flow")

    full = flow(PlanRequest())
    assert flow(PlanRequest(preset="fast")) == pytest.approx(full * 4 / 9, rel=0.01)
    assert flow(PlanRequest(steps=19)) == pytest.approx(full * 2, rel=0.01)
    assert full / 2 < flow(PlanRequest(cfg=1.0)) < full


def test_a_reference_delays_the_first_audio_only(planner: Planner) -> None:
    profile = PROFILES["x86-vnni"]
    without, with_ = (
        planner.plan(profile, PlanRequest(reference_s=seconds)) for seconds in (0.0, 10.0)
    )
    assert with_.prefix_rows == without.prefix_rows + 63 + 2
    assert without.cpu is not None
    assert with_.cpu is not None
    assert with_.cpu.first_audio_ms > 2 * without.cpu.first_audio_ms
    assert with_.cpu.ms_per_patch == pytest.approx(without.cpu.ms_per_patch, rel=0.01)
    assert any("vae_encoder" in row.name for row in with_.memory.rows)


def test_long_prefixes_are_read_in_the_runtimes_pieces(outline: Path) -> None:
    model = Bundle.open(outline, verify=False).manifest.model
    plan = family_plan(model, PROFILES["x86-vnni"], PlanRequest(text_rows=600))
    pieces = [run.shapes["rows"][1] for run in plan.runs if run.component == "prefill"]
    assert pieces == [256, 256, 88]


def test_only_valid_rows_of_the_cache_are_read(outline: Path) -> None:
    spec = VoxCpm2Spec.model_validate(Bundle.open(outline, verify=False).manifest.model)
    model = spec.model_dump()
    request = PlanRequest(text_rows=100, patches=101)
    for dtype, widened in (("f32", 1), ("f16", 5)):
        kv = PROFILES["x86-vnni"].kv.model_copy(update={"dtype": dtype})
        profile = PROFILES["x86-vnni"].model_copy(update={"kv": kv})
        step = family_plan(model, profile, request).runs[-1]
        row = 73_728 if dtype == "f32" else 36_864
        assert step.component == "lm_step"
        assert step.attention.read_bytes == 150 * row * widened
        assert step.attention.ops == 4 * 150 * 2048 * 36


def test_one_row_is_bound_by_one_thing_and_many_rows_by_both() -> None:
    quick = plain_profile(memory_gb_s=100, cpu_f32_gflops=100, cpu_int8_gops=9000)
    speeds = speeds_of(quick, "cpu")
    for rows, both in ((1, False), (256, True)):
        work = Work(weight_bytes=0)
        work.products[Product("int8-128", rows, 1024, 1024)] = 1
        times = run_times(work, Attention(), speeds)
        assert (times.memory > 0 and times.compute > 0) is both
        read = 1000 * weight_bytes("int8-128", 1024, 1024) / 100e9
        assert times.memory == pytest.approx(read)
        assert times.other == pytest.approx(0.2 * (times.memory + times.compute))


def test_speeds_follow_threads_rows_and_peaks() -> None:
    board = PROFILES["rk3588-generic"]
    four, two = (speeds_of(board, "cpu", threads) for threads in (None, 2))
    assert two.large["int8"] == four.large["int8"] / 2
    assert speeds_of(board, "cpu", 8).large == four.large
    assert four.large["int8"] == pytest.approx(589e9 * 0.75)
    assert four.large["f32"] == pytest.approx(87e9)
    per_thread = speeds_of(PROFILES["x86-avx2"], "cpu", 2)
    # Measured with 22 rows, so 22 rows reach just that.
    assert per_thread.ops("int8", 22) == pytest.approx(200e9)
    assert per_thread.ops("int8-32", 22) == pytest.approx(92e9)
    with pytest.raises(UnknownSpeedError, match="gpu_memory_gb_s"):
        speeds_of(FAST, "cuda")


def test_shares_of_rows_grow_up_to_that_of_a_large_product() -> None:
    for kernel in ROW_SHARES:
        shares = [row_share(kernel, rows) for rows in range(1, 400)]
        assert shares == sorted(shares)
        assert shares[-1] == 1.0


def test_an_npu_computes_with_the_cores_it_is_given(planner: Planner) -> None:
    profile = PROFILES["rk3588-generic"]
    flow = profile.flow.model_copy(update={"npu_cores": "0_1_2"})
    one, three = (
        speeds_of(each, "rknn") for each in (profile, profile.model_copy(update={"flow": flow}))
    )
    assert one.large["int8"] == pytest.approx(1e12)
    assert three.large["int8"] == pytest.approx(3e12)


def test_int4_is_counted_as_an_int4_export_writes_it(outline: Path, make_bundle: object) -> None:
    int8, int4 = (make_bundle("tiny", weights) for weights in ("int8", "int4"))  # type: ignore[operator]
    hidden = VoxCpm2Spec.model_validate(Bundle.open(int8).manifest.model).hidden
    shapes = {"rows": (1, 1, hidden), "is_audio": (1, 1, 1), "seqlens_k": (1,), "total_rows": ()}
    one, other = (graph_work(folder / "graphs/lm.onnx", shapes) for folder in (int8, int4))
    formats = {product.format: "int4-32" for product in one.products if "-" in product.format}
    changed = reformatted(one, formats)
    assert changed.products == other.products
    assert changed.weight_bytes == other.weight_bytes
    assert {name: count for name, count in changed.macs.items() if count} == other.macs


def test_counted_weights_are_those_of_the_formula(outline: Path) -> None:
    shapes = {"rows": (1, 1, 2048), "is_audio": (1, 1, 1), "seqlens_k": (1,), "total_rows": ()}
    work = graph_work(outline / "graphs/lm.onnx", shapes)
    reckoned = sum(
        weight_bytes(product.format, product.inputs, product.outputs) * times
        for product, times in work.products.items()
    )
    assert reckoned == pytest.approx(work.weight_bytes, rel=0.01)


def test_what_this_machine_measured_is_used_and_named(int8_bundle: Path, tmp_path: Path) -> None:
    from edge_runtime.prepare.prepared_info import INFO, GraphCost, PreparedInfo, Workspace

    bundle = Bundle.open(int8_bundle)
    from edge_runtime.bundle import MANIFEST, sha256_of

    digest = sha256_of(int8_bundle / MANIFEST)
    costs = {
        stem: GraphCost(session_bytes=7 << 20, workspaces=(Workspace(size=1, bytes=1),))
        for stem in bundle.graphs()
    }
    info = PreparedInfo(
        bundle=digest, cpu="c", runtime="onnxruntime 1", kv_dtype="f32", layout=3, files={},
        costs=costs,
    )  # fmt: skip
    folder = tmp_path / f"prepared/{digest[:16]}-0"
    folder.mkdir(parents=True)
    (folder / INFO).write_text(info.model_dump_json())
    assert "onnxruntime 1" in measured_costs(bundle, "f32", tmp_path).source
    assert not measured_costs(bundle, "f16", tmp_path).by_graph
    profile = replace_memory(FAST)
    plan = Planner(bundle, tmp_path).plan(profile, PlanRequest())
    lm = next(row for row in plan.memory.rows if row.name == "session lm")
    assert lm.planned == 7 << 20
    (folder / INFO).write_text("{torn")
    assert "estimated" in measured_costs(bundle, "f32", tmp_path).source


def replace_memory(profile: Profile) -> Profile:
    memory = profile.memory.model_copy(update={"prepare_from_mib": 0})
    return profile.model_copy(update={"memory": memory})


def test_a_request_can_be_changed_and_is_frozen() -> None:
    request = replace(PlanRequest(), preset="fast")
    assert request.euler_steps == 5
