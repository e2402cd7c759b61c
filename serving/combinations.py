"""Combinations of arguments that are known to fail, whatever the host: found before anything is touched."""

from collections.abc import Callable, Iterator, Mapping

from serving.contract import Value
from serving.problems import Problem
from serving.profile import shown_name
from serving.wanted import Wanted

Arguments = Mapping[str, Value]
# Prefill and decode exchange KV cache page by page: what decides its shape must be equal (sglang 0.5.23,
# disaggregation/common/conn.py; another TP failed for a model with sliding windows, llm-d #2433).
SHAPE_OF_KV = ("tp_size", "pp_size", "attn_dp_size", "kv_cache_dtype", "page_size", "dsv4_attn_backend")
HOW_KV_GOES = ("disaggregation_transfer_backend",)


def problems(wanted: Wanted) -> Iterator[Problem]:
    """Every such combination in the profile, one line each."""
    for role in wanted.profile.worker_roles:
        for rule in OF_A_WORKER:
            yield from rule(wanted, role, wanted.arguments_of(role))
    if wanted.profile.topology == "pd":
        yield from _prefill_and_decode_differ(wanted)


def _problem(wanted: Wanted, role: str, name: str, what: str, remedy: str) -> Problem:
    """With the key where the argument stands: the role's own, or that of all workers."""
    under = f"{role}.arguments" if name in wanted.overrides.get(role, {}) else "arguments"
    return Problem(shown_name(wanted.profile_name), f"{under}.{name}", what, remedy)


def _memory_fraction(wanted: Wanted, role: str, arguments: Arguments) -> Iterator[Problem]:
    fraction = arguments.get("mem_fraction_static")
    if isinstance(fraction, int | float) and not 0.1 <= fraction <= 0.95:
        what, remedy = f"{fraction} is outside 0.1 to 0.95", "0.85 is the field's ceiling for TP4"
        yield _problem(wanted, role, "mem_fraction_static", what, remedy)


def _gpu_count(wanted: Wanted, role: str, arguments: Arguments) -> Iterator[Problem]:
    gpus, tp, pp = wanted.profile.gpus, arguments.get("tp_size", 1), arguments.get("pp_size", 1)
    if isinstance(tp, int) and isinstance(pp, int) and tp * pp != gpus:
        of = f" of {role}" if wanted.profile.topology == "pd" else ""
        what = f"is {gpus}, tp_size x pp_size{of} is {tp * pp}"
        yield Problem(shown_name(wanted.profile_name), "gpus", what, "make them equal")


def _marlin_with_experts_parallel(wanted: Wanted, role: str, arguments: Arguments) -> Iterator[Problem]:
    ep = arguments.get("ep_size", 1)
    if arguments.get("moe_runner_backend") == "marlin" and isinstance(ep, int) and ep > 1:
        what = "crashes with moe_runner_backend marlin (sglang PR #30272)"
        yield _problem(wanted, role, "ep_size", what, "use flashinfer_mxfp4, or leave ep_size away")


def _nvfp4(wanted: Wanted, role: str, arguments: Arguments) -> Iterator[Problem]:
    """`auto` takes a TRT-LLM kernel that exists for SM100 only, and so do the MTP experts (sglang 0.5.23, its code)."""
    if wanted.checkpoint.experts != "nvfp4":
        return
    if arguments.get("moe_runner_backend", "auto") == "auto":
        what, remedy = "auto picks a kernel for SM100 with an NVFP4 checkpoint", "write flashinfer_cutlass or marlin"
        yield _problem(wanted, role, "moe_runner_backend", what, remedy)
    if arguments.get("speculative_algorithm") in ("EAGLE", "NEXTN"):
        what = "does not work with an NVFP4 checkpoint on this card"
        yield _problem(wanted, role, "speculative_algorithm", what, "leave it away")


def _draft_head(wanted: Wanted, role: str, arguments: Arguments) -> Iterator[Problem]:
    algorithm, draft = arguments.get("speculative_algorithm"), wanted.checkpoint.draft
    needs = {"EAGLE": "mtp", "NEXTN": "mtp", "DSPARK": "dspark"}.get(str(algorithm))
    if needs and needs != draft:
        repository = wanted.checkpoint.repository
        what = f"{algorithm} needs a checkpoint with a {needs} head, {repository} has {draft or 'none'}"
        yield _problem(wanted, role, "speculative_algorithm", what, "use the checkpoint it was trained with")


def _dspark_apart(wanted: Wanted, role: str, arguments: Arguments) -> Iterator[Problem]:
    if wanted.profile.topology == "pd" and arguments.get("speculative_algorithm") == "DSPARK":
        what = "DSPARK does not work with prefill and decode apart (sglang cookbook, DeepSeek-V4)"
        yield _problem(wanted, role, "speculative_algorithm", what, "leave it away, or use topology single or replicas")


def _how_kv_goes(wanted: Wanted, role: str, arguments: Arguments) -> Iterator[Problem]:
    """mooncake, the default, garbles KV cache over TCP on a host without InfiniBand (cookbook); `fake` moves none."""
    backend = arguments.get("disaggregation_transfer_backend", "mooncake")
    if wanted.profile.topology == "pd" and backend in ("mooncake", "fake"):
        what = f"is {backend}, which does not move KV cache from card to card on one host"
        yield _problem(wanted, role, "disaggregation_transfer_backend", what, "write nixl")


def _prefill_and_decode_differ(wanted: Wanted) -> Iterator[Problem]:
    prefill, decode = wanted.arguments_of("prefill"), wanted.arguments_of("decode")
    where = shown_name(wanted.profile_name)
    for name in (*SHAPE_OF_KV, *HOW_KV_GOES):
        if prefill.get(name) != decode.get(name):
            what = f"is {decode.get(name, 'unset')}, that of prefill is {prefill.get(name, 'unset')}"
            yield Problem(where, f"decode.arguments.{name}", what, "make them equal: write it under arguments")
    layouts = [wanted.profile.environment_of(role).get("SGLANG_DSV4_KV_LAYOUT") for role in ("prefill", "decode")]
    if layouts[0] != layouts[1]:
        what = f"is {layouts[1] or 'unset'}, that of prefill is {layouts[0] or 'unset'}"
        remedy = "make them equal: write it under environment"
        yield Problem(where, "decode.environment.SGLANG_DSV4_KV_LAYOUT", what, remedy)


OF_A_WORKER: tuple[Callable[[Wanted, str, Arguments], Iterator[Problem]], ...] = (
    _memory_fraction,
    _gpu_count,
    _marlin_with_experts_parallel,
    _nvfp4,
    _draft_head,
    _dspark_apart,
    _how_kv_goes,
)
