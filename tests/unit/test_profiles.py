"""Profiles are data: what is wrong in them is said with file, key, reason and remedy."""

from pathlib import Path
from shutil import copytree

import pytest
import yaml

from serving.plan import GROUP_DATA, load_wanted
from serving.problems import Refused
from serving.profile import merged
from serving.secret import ApiKey
from tests.unit import worlds


@pytest.fixture
def group_data(tmp_path: Path) -> Path:
    """A copy, in which the profiles that extend another are there whole, too: whole-pd."""
    copy = Path(copytree(GROUP_DATA, tmp_path / "group_data"))
    for name in ("2x-tp4", "pd"):
        write(copy, yaml.safe_dump(merged(copy / "profiles", name)), name=f"whole-{name}")
    return copy


def write(group_data: Path, text: str, name: str = "mine") -> None:
    (group_data / "profiles" / f"{name}.yaml").write_text(text, encoding="utf-8")


def refusal_of(group_data: Path, text: str) -> list[str]:
    write(group_data, text)
    with pytest.raises(Refused) as refusal:
        load_wanted(worlds.site(profile="mine"), group_data)
    return [str(problem) for problem in refusal.value.problems]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("extends: tp4-mxfp4\nargumets: {}\n", "profiles/mine.yaml: argumets: unknown key; did you mean arguments?"),
        ("extends: tp4-mxfp4\ngpus: four\n", "gpus: input should be a valid integer, not 'four'; correct the value"),
        ("extends: tp4-mxfp4\ngpus: true\n", "gpus: input should be a valid integer, not True"),
        ("extends: tp4-mxfp4\ngates: {answer: 4}\n", "gates.answer: input should be a valid string, not 4"),
        (
            "extends: tp4-mxfp4\nengine: sglang-0.5.32\n",
            "engines/sglang-0.5.32.yaml: there is no such file; did you mean",
        ),
        ("extends: tp4-mxfp4\ncheckpoint: nope\n", "checkpoints/nope.yaml: there is no such file"),
        ("extends: tp4-mxfp4\nnccl: ring\n", "nccl/ring.yaml: there is no such file; did you mean ll-ring?"),
        ("extends: tp4-mxfp5\n", "profiles/tp4-mxfp5.yaml: there is no such file; did you mean tp4-mxfp4"),
        ("gpus: 4\ngpus: 8\n", "line 2: not valid YAML (the key 'gpus' is given twice)"),
        ("gpus: [4\n", "not valid YAML"),
        ("just words\n", "holds no mapping of keys to values"),
        (
            "extends: tp4-mxfp4\narguments: {cuda_graph_max_bs: 32}\n",
            "arguments.cuda_graph_max_bs: is ambiguous in sglang 0.5.23; "
            "write cuda_graph_max_bs_decode or cuda_graph_max_bs_prefill",
        ),
        (
            "extends: tp4-mxfp4\narguments: {mem_fracton: 1}\n",
            "mem_fracton: is unknown to sglang 0.5.23; did you mean mem_fraction",
        ),
        (
            "extends: tp4-mxfp4\narguments: {port: 1}\n",
            "arguments.port: is set by the plan; set `port` in group_data/all.py",
        ),
        ("extends: tp4-mxfp4\narguments: {model: /x}\n", "arguments.model_path: is set by the plan"),
        ("extends: tp4-mxfp4\narguments: {api_key: k}\n", "a key never stands in a profile"),
        ("extends: tp4-mxfp4\narguments: {tp: 4}\n", "arguments.tp: means tp_size, given twice"),
        ("extends: tp4-mxfp4\narguments: {max_running_requests: many}\n", "takes a whole number, not 'many'"),
        ("extends: tp4-mxfp4\narguments: {trust_remote_code: 1}\n", "is a switch, not 1; write true or false"),
        ("extends: tp4-mxfp4\narguments: {load_format: atuo}\n", "'atuo' is no choice; did you mean auto"),
        ("extends: tp4-mxfp4\ntopology: ring\n", "topology: input should be 'single', 'replicas' or 'pd', not 'ring'"),
        ("extends: tp4-mxfp4\nreplicas: 2\n", "replicas: means nothing with topology single; take it out, or set"),
        ("extends: tp4-mxfp4\nrouter: {}\n", "router: means nothing with topology single"),
        (
            "extends: tp4-mxfp4\ndecode: {}\n",
            "decode: means nothing with topology single; take it out, or set topology",
        ),
        ("extends: tp4-mxfp4\ntopology: pd\n", "router_engine: is needed with topology pd; add it"),
        ("extends: whole-2x-tp4\nreplicas: 1\n", "replicas: input should be greater than 1, not 1"),
        (
            "extends: whole-2x-tp4\nrouter: {polcy: random}\n",
            "router.polcy: is unknown to sglang-router 0.3.2; did you mean p",
        ),
        ("extends: whole-2x-tp4\nrouter: {policy: fastest}\n", "router.policy: 'fastest' is no choice"),
        (
            "extends: whole-2x-tp4\nrouter: {port: 1}\n",
            "router.port: is set by the plan; set `port` in group_data/all.py",
        ),
        (
            "extends: whole-2x-tp4\nrouter: {api_key: k}\n",
            "router.api_key: is set by the plan; a key never stands in a prof",
        ),
        (
            "extends: whole-pd\nprefill: {arguments: {cuda_graph_max_bs: 1}}\n",
            "prefill.arguments.cuda_graph_max_bs: is ambig",
        ),
        ("extends: whole-pd\ndecode: {arguments: {nccl_port: 1}}\n", "decode.arguments.nccl_port: is set by the plan"),
        ("extends: whole-pd\narguments: {disaggregation_mode: decode}\n", "is set by the plan; set `topology: pd`"),
        ("extends: whole-pd\ndecode: {argument: {}}\n", "decode.argument: unknown key; did you mean arguments"),
        ("extends: tp4-mxfp4\nenvironment: {A: 'b # c'}\n", "environment.A: value error, must be a plain word"),
        ("extends: tp4-mxfp4\nenvironment: {'A B': 1}\n", "environment.A B"),
    ],
)
def test_is_refused_with_the_remedy(group_data: Path, text: str, expected: str) -> None:
    lines = refusal_of(group_data, text)
    assert any(expected in line for line in lines), lines


def test_every_problem_of_the_arguments_is_said_at_once(group_data: Path) -> None:
    text = "extends: tp4-mxfp4\nnccl: nope\narguments: {cuda_graph_max_bs: 32, mem_fracton: 1, load_format: x}\n"
    assert len(refusal_of(group_data, text)) == 2 or len(refusal_of(group_data, text)) >= 4


def test_an_unknown_profile_offers_the_near_names(group_data: Path) -> None:
    with pytest.raises(Refused, match=r"tp4-mxpf4.yaml: there is no such file; did you mean tp4-mxfp4"):
        load_wanted(worlds.site(profile="tp4-mxpf4"), group_data)


def test_an_unknown_site_setting_is_refused() -> None:
    with pytest.raises(Refused, match=r"group_data: modles: unknown key; did you mean models\?"):
        worlds.site(modles="/x")


def test_an_abbreviation_without_doubt_is_taken_and_mentioned(group_data: Path) -> None:
    write(group_data, "extends: sandbox\narguments: {tp_size: null, tp: 1}\n")
    wanted = load_wanted(worlds.site(profile="mine"), group_data)
    assert wanted.arguments["tp_size"] == 1
    assert "tp is taken as tp_size" in wanted.notes


def test_what_extends_another_keeps_the_rest_of_it(group_data: Path) -> None:
    write(group_data, "extends: tp4-mxfp4\narguments: {mem_fraction_static: 0.8}\nnccl: null\n")
    wanted = load_wanted(worlds.site(profile="mine"), group_data)
    assert wanted.arguments["mem_fraction_static"] == 0.8
    assert wanted.arguments["tp_size"] == 4


def test_a_null_takes_a_key_away_at_any_depth(group_data: Path) -> None:
    write(group_data, "extends: whole-pd\nnccl: null\ndecode: {arguments: {cuda_graph_max_bs_decode: null}}\n")
    wanted = load_wanted(worlds.site(profile="mine"), group_data)
    assert wanted.nccl == {}
    assert "cuda_graph_max_bs_decode" not in wanted.arguments_of("decode"), "not that of both either"


def test_a_role_may_take_an_argument_of_all_away_also_by_its_short_name(group_data: Path) -> None:
    write(
        group_data,
        "extends: whole-pd\narguments: {ep: 2}\ndecode: {arguments: {ep: 1}}\nprefill: {arguments: {tp: null}}\n",
    )
    wanted = load_wanted(worlds.site(profile="mine"), group_data)
    assert "tp_size" not in wanted.arguments_of("prefill")
    assert (wanted.arguments_of("prefill")["ep_size"], wanted.arguments_of("decode")["ep_size"]) == (2, 1)


def test_only_one_level_is_extended(group_data: Path) -> None:
    write(group_data, "extends: sandbox\n", name="middle")
    [line] = refusal_of(group_data, "extends: middle\n")
    assert "extends middle, which extends sandbox; extend a profile that extends none" in line


def test_an_engine_whose_files_are_not_there_is_refused_with_their_names(group_data: Path) -> None:
    engine = group_data / "engines" / "sglang-0.5.23.yaml"
    engine.write_text(engine.read_text().replace("lock: sglang-0.5.23.lock", "lock: sglang-0.5.24.lock"))
    [problem] = refusal_of(group_data, "extends: tp4-mxfp4\n")
    assert "engines/sglang-0.5.23.yaml: lock: sglang-0.5.24.lock does not exist; name one that lies in" in problem


def test_a_key_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(b"\xff\xfe" * 20)
    file.chmod(0o600)
    with pytest.raises(Refused, match="cannot be read"):
        ApiKey(file)


def test_an_engine_with_gpu_kernels_needs_compilers_and_one_for_the_cpu_does_not() -> None:
    engines = {profile: worlds.plan(profile=profile).engine for profile in ("tp4-mxfp4", "sandbox")}
    assert engines["tp4-mxfp4"].packages == {"python3.12-venv", "python3.12-dev", "g++"}
    assert engines["sandbox"].packages == {"python3.11-venv"}
